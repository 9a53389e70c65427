"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const figure = byId("picture"), drawing = figure.querySelector("svg"), query = byId("query");
  const rows = [...document.querySelectorAll("tbody tr")];
  const links = [...drawing.querySelectorAll("a[data-id]")];

  // Natural size, or smaller where the window is narrower.
  const natural = drawing.width.baseVal.value;
  let width;
  function show(wanted) {
    const middle = (figure.scrollLeft + figure.clientWidth / 2) / (width || wanted);
    width = Math.min(Math.max(wanted, 200), natural * 6);
    drawing.style.width = `${width}px`;
    figure.scrollLeft = middle * width - figure.clientWidth / 2;
  }
  const fit = () => show(Math.min(natural, figure.clientWidth));
  byId("in").addEventListener("click", () => show(width * 1.25));
  byId("out").addEventListener("click", () => show(width / 1.25));
  byId("fit").addEventListener("click", fit);
  window.addEventListener("resize", fit);
  figure.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; // a wheel alone scrolls the page
    event.preventDefault();
    show(width * Math.exp(-event.deltaY * 0.003));
  }, { passive: false });
  figure.addEventListener("pointermove", (event) => {
    if (event.buttons !== 1) return;
    figure.scrollLeft -= event.movementX;
    window.scrollBy(0, -event.movementY);
  });
  drawing.addEventListener("dragstart", (event) => event.preventDefault());

  // An address is found in the blocks that hold it.
  const number = (address) => address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
  const holds = (text, address) => [...text.matchAll(/(\d+\.\d+\.\d+\.\d+)\/(\d+)/g)].some(([, block, prefix]) => {
    const size = 2 ** (32 - prefix);
    return Math.floor(number(block) / size) === Math.floor(number(address) / size);
  });
  function filter() {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    const address = /^\d+\.\d+\.\d+\.\d+$/.test(query.value.trim()) && query.value.trim();
    const found = new Set();
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const hit = words.every((word) => text.includes(word))
        || (address && holds(row.querySelector(".address").textContent, address));
      row.hidden = !hit;
      if (hit) found.add(row.id);
    }
    for (const section of document.querySelectorAll("section")) section.hidden = !section.querySelector("tr[id]:not([hidden])");
    for (const link of links) link.classList.toggle("hit", found.has(link.dataset.id));
    drawing.classList.toggle("searching", words.length > 0);
    byId("found").textContent = words.length ? `${found.size} found` : "";
  }
  query.addEventListener("input", filter);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      query.value = "";
      filter();
    } else if (event.target !== query && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const action = { "/": () => query.focus(), "+": () => byId("in").click(), "-": () => byId("out").click(), 0: fit }[event.key];
      if (action) {
        event.preventDefault();
        action();
      }
    }
  });
  fit();
})();
