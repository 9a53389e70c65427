"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const canvas = byId("canvas"), tip = byId("tip"), panel = byId("panel");
  const query = byId("query"), found = byId("found"), results = byId("results");
  const { actions, items } = JSON.parse(byId("items").textContent);
  const MOST = 60;

  // ---- what is drawn, and what is known of it

  canvas.querySelectorAll("title").forEach((title) => title.remove()); // we say more, and sooner

  const empty = { note: "", facts: [], blocks: [], parent: "", related: [], via: [], change: "" };
  for (const item of items) for (const key in empty) item[key] ??= empty[key];
  const told = new Map(items.map((item) => [item.id, item]));
  const children = new Map();
  for (const item of items) {
    if (!item.parent) continue;
    if (!children.has(item.parent)) children.set(item.parent, []);
    children.get(item.parent).push(item);
  }
  const drawn = new Map();
  const shapes = [...canvas.querySelectorAll("[data-id]")];
  for (const shape of shapes) {
    const id = shape.dataset.id;
    if (!drawn.has(id)) drawn.set(id, []);
    drawn.get(id).push(shape);
  }
  // A bus wire stands for a place: pointing at it is pointing at the place.
  const meant = (id) => (told.has(id) ? id : id.startsWith("bus/") ? id.split("/").slice(2).join("/") : id);
  const standIns = (id) => {
    if (drawn.has(id)) return drawn.get(id);
    const item = told.get(id);
    return item && item.parent ? standIns(item.parent) : [];
  };
  // Lines that matter just now are drawn again, above those that do not.
  const raised = canvas.querySelector(".raised");
  function raise() {
    const copies = [...canvas.querySelectorAll(".wire.lit, .wire.hit")].map((wire) => {
      const copy = wire.cloneNode(true);
      for (const name of ["data-id", "tabindex", "role", "aria-label"]) copy.removeAttribute(name);
      return copy;
    });
    raised.replaceChildren(...copies);
  }
  const element = (tag, text, name) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (name) made.className = name;
    return made;
  };

  // ---- telling

  function tell(item) {
    const made = element("div", undefined, "told");
    made.append(element("h2", item.title));
    const kind = element("p", undefined, "kind");
    if (item.change) {
      const [sign, words] = actions[item.change];
      kind.append(element("span", sign, `sign ${item.change}`), element("b", `to be ${words} · `));
    }
    kind.append([item.kind, item.note].filter(Boolean).join(" · "));
    made.append(kind);
    const list = element("dl");
    for (const [label, value] of item.facts) list.append(element("dt", label), element("dd", value));
    made.append(list);
    return made;
  }

  function place(box) {
    const area = canvas.getBoundingClientRect();
    const { offsetWidth: w, offsetHeight: h } = tip;
    const right = box.right - area.left + 14;
    const x = right + w < area.width ? right : Math.max(box.left - area.left - w - 14, 8);
    const y = Math.min(Math.max(box.top - area.top, 8), Math.max(area.height - h - 8, 8));
    tip.style.left = `${x}px`;
    tip.style.top = `${y}px`;
  }

  // ---- lighting

  let lit = "";
  function light(id, box) {
    if (id === lit) return box && place(box);
    if (lit) dark();
    const item = told.get(id);
    if (!item) return;
    lit = id;
    const wires = new Set(item.via);
    for (const other of item.related) {
      const shown = drawn.get(other);
      if (shown) shown.forEach((shape) => shape.classList.add("lit"));
      else {
        const far = told.get(other);
        for (const wire of far ? far.via : []) wires.add(wire);
      }
    }
    for (const wire of wires) (drawn.get(wire) || []).forEach((shape) => shape.classList.add("lit"));
    (drawn.get(id) || []).forEach((shape) => shape.classList.add("lit", "at"));
    if (canvas.querySelector(".wire.lit")) canvas.classList.add("lighting");
    raise();
    if (!box) return;
    tip.replaceChildren(tell(item));
    tip.hidden = false;
    place(box);
  }
  function dark() {
    lit = "";
    tip.hidden = true;
    canvas.classList.remove("lighting");
    canvas.querySelectorAll(".lit").forEach((shape) => shape.classList.remove("lit", "at"));
    raise();
  }

  const at = (target) => (target instanceof Element ? target.closest("[data-id]") : null);
  const pointer = (event) => ({ left: event.clientX, right: event.clientX, top: event.clientY + 14 });

  canvas.addEventListener("pointermove", (event) => {
    if (drag) return;
    const shape = at(event.target);
    if (shape) light(meant(shape.dataset.id), pointer(event));
    else if (!canvas.contains(document.activeElement)) dark();
    else if (lit) dark();
  });
  canvas.addEventListener("pointerleave", dark);
  canvas.addEventListener("focusin", (event) => {
    const shape = at(event.target);
    if (shape && shape.matches(":focus-visible")) light(meant(shape.dataset.id), shape.getBoundingClientRect());
  });
  canvas.addEventListener("focusout", dark);

  // ---- the panel: all there is to tell, for good

  function open(id) {
    const item = told.get(id);
    if (!item) return;
    const close = element("button", "×", "close");
    close.type = "button";
    close.setAttribute("aria-label", "Close details");
    close.addEventListener("click", shut);
    panel.replaceChildren(close, tell(item));
    const groups = new Map();
    const gather = (name, other) => {
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(other);
    };
    for (const child of children.get(id) || []) gather(child.kind, child);
    for (const other of item.related) if (told.has(other)) gather(`related: ${told.get(other).kind}`, told.get(other));
    for (const [name, list] of groups) {
      panel.append(element("h3", `${name[0].toUpperCase()}${name.slice(1)} · ${list.length}`));
      const made = element("ul");
      for (const child of list) {
        const button = element("button");
        button.type = "button";
        button.append(element("span", child.title), element("small", child.note));
        button.addEventListener("click", () => go(child.id));
        const row = element("li");
        row.append(button);
        made.append(row);
      }
      panel.append(made);
    }
    panel.hidden = false;
    panel.scrollTop = 0;
  }
  function shut() {
    panel.hidden = true;
  }
  function go(id) {
    const [shape] = standIns(id);
    open(id);
    if (shape) reveal(shape);
    light(id);
  }

  // ---- search

  const address = (text) => {
    const parts = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(text);
    if (!parts || parts.slice(1).some((part) => Number(part) > 255)) return null;
    return parts.slice(1).reduce((sum, part) => sum * 256 + Number(part), 0);
  };
  const block = (text) => {
    const [base, bits = "32"] = text.split("/");
    const first = address(base);
    if (first === null || !/^\d{1,2}$/.test(bits) || Number(bits) > 32) return null;
    const size = 2 ** (32 - Number(bits));
    const start = Math.floor(first / size) * size;
    return { start, end: start + size - 1, size };
  };
  const haystack = new Map(
    items.map((item) => [
      item,
      [item.id, item.kind, item.title, item.note, item.change, ...item.facts.map((fact) => fact[1])].join("\n").toLowerCase(),
    ]),
  );
  const ranges = new Map(items.map((item) => [item, item.blocks.map(block).filter(Boolean)]));

  const joins = new Set(["VPN connection", "site tunnel", "peering"]);
  const wiresOf = (item) => (joins.has(item.kind) ? item.via.flatMap((wire) => drawn.get(wire) || []) : []);

  function matches(text) {
    const wanted = block(text);
    if (wanted) {
      // The smallest block around it first: the answer to "whose address is this?"
      const around = items
        .map((item) => [item, ranges.get(item).filter((each) => each.start <= wanted.start && wanted.end <= each.end)])
        .filter(([, list]) => list.length)
        .map(([item, list]) => [item, Math.min(...list.map((each) => each.size))])
        .sort((one, other) => one[1] - other[1])
        .map(([item]) => item);
      const inside = text.includes("/")
        ? items.filter((item) => !around.includes(item) && ranges.get(item).some((each) => wanted.start <= each.start && each.end <= wanted.end))
        : [];
      return [...around, ...inside];
    }
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const whole = words.join(" ");
    // Its very name, then names that begin so, then names with it in them, then the rest.
    const rank = (item) => {
      const title = item.title.toLowerCase();
      return title === whole ? 0 : title.startsWith(whole) ? 1 : words.some((word) => title.includes(word)) ? 2 : 3;
    };
    return items
      .filter((item) => words.every((word) => haystack.get(item).includes(word)))
      .map((item) => [rank(item), item])
      .sort((one, other) => one[0] - other[0])
      .map(([, item]) => item);
  }

  function search() {
    const text = query.value.trim();
    canvas.querySelectorAll(".hit, .holds").forEach((shape) => shape.classList.remove("hit", "holds"));
    canvas.classList.toggle("searching", text !== "");
    results.hidden = true;
    found.textContent = "";
    if (!text) return raise();
    const hits = matches(text);
    for (const item of hits) {
      const shown = drawn.get(item.id) || [];
      shown.forEach((shape) => shape.classList.add("hit"));
      if (!shown.length) [...standIns(item.id), ...wiresOf(item)].forEach((shape) => shape.classList.add("hit"));
      for (const end of joins.has(item.kind) ? item.related : [item.parent])
        (drawn.get(end) || []).forEach((shape) => shape.classList.add("holds"));
    }
    raise();
    found.textContent = hits.length ? `${hits.length} found` : "nothing found";
    results.replaceChildren(
      ...hits.slice(0, MOST).map((item) => {
        const button = element("button");
        button.type = "button";
        button.append(element("span", item.title), element("small", item.kind), element("small", [item.parent, item.note].filter(Boolean).join(" · ")));
        button.addEventListener("click", () => {
          results.hidden = true;
          go(item.id);
        });
        const row = element("li");
        row.append(button);
        return row;
      }),
    );
    results.hidden = !hits.length;
  }
  query.addEventListener("input", search);
  query.addEventListener("focus", () => {
    results.hidden = !query.value.trim() || !results.children.length;
  });
  byId("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const first = results.querySelector("button");
    if (first) first.click();
  });
  byId("find").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || results.hidden) return;
    event.preventDefault();
    const buttons = [...results.querySelectorAll("button")];
    const next = buttons.indexOf(document.activeElement) + step;
    (next < 0 ? query : buttons[Math.min(next, buttons.length - 1)]).focus();
  });
  document.addEventListener("pointerdown", (event) => {
    if (!byId("find").contains(event.target)) results.hidden = true;
  });

  // ---- zoom and pan: the view box is the camera

  const whole = { x: 0, y: Number(canvas.dataset.top), w: Number(canvas.dataset.width), h: Number(canvas.dataset.height) };
  let view = { ...whole };
  function show() {
    canvas.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
  }
  function scale() {
    return Math.max(view.w / canvas.clientWidth, view.h / canvas.clientHeight);
  }
  function zoom(factor, centre) {
    const w = Math.min(Math.max(view.w * factor, 240), whole.w * 1.6);
    const by = w / view.w;
    const middle = centre || { x: view.x + view.w / 2, y: view.y + view.h / 2 };
    view = { x: middle.x - (middle.x - view.x) * by, y: middle.y - (middle.y - view.y) * by, w, h: view.h * by };
    show();
  }
  function point(event) {
    const to = new DOMPoint(event.clientX, event.clientY).matrixTransform(canvas.getScreenCTM().inverse());
    return { x: to.x, y: to.y };
  }
  function fit() {
    view = { ...whole };
    // Never beyond natural size by much: a small cluster must not shout.
    const grow = scale() < 0.8 ? 0.8 / scale() : 1;
    view = { x: view.x - (view.w * (grow - 1)) / 2, y: view.y - (view.h * (grow - 1)) / 2, w: view.w * grow, h: view.h * grow };
    show();
  }
  function reveal(shape) {
    const box = shape.getBBox();
    const natural = scale() > 1 ? 1 / scale() : 1;
    zoom(natural);
    // In the middle of what the panel leaves free.
    view.x = box.x + box.width / 2 - view.w / 2 + (panel.offsetWidth / 2) * scale();
    view.y = box.y + box.height / 2 - view.h / 2;
    show();
  }
  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(Math.max(Math.min(event.deltaY, 60), -60) * (event.ctrlKey ? 0.01 : 0.003)), point(event));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { x: event.clientX, y: event.clientY, view: { ...view }, moved: false };
  });
  window.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag.moved = true;
    canvas.classList.add("dragging");
    const by = scale();
    view = { ...drag.view, x: drag.view.x - dx * by, y: drag.view.y - dy * by };
    show();
  });
  window.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const shape = at(event.target);
    if (!drag.moved) {
      if (shape && canvas.contains(shape)) open(meant(shape.dataset.id));
      else if (canvas.contains(event.target)) shut();
    }
    canvas.classList.remove("dragging");
    drag = null;
  });
  window.addEventListener("pointercancel", () => {
    drag = null;
  });
  byId("in").addEventListener("click", () => zoom(0.8));
  byId("out").addEventListener("click", () => zoom(1.25));
  byId("fit").addEventListener("click", fit);
  window.addEventListener("resize", fit);
  window.addEventListener("beforeprint", () => {
    view = { ...whole };
    show();
  });
  window.addEventListener("afterprint", fit);

  // ---- keys

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      dark();
      if (!results.hidden) results.hidden = true;
      else if (!panel.hidden) shut();
      else if (query.value) {
        query.value = "";
        search();
      }
      return;
    }
    if (event.target === query || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      query.focus();
      query.select();
    } else if (event.key === "+" || event.key === "=") zoom(0.8);
    else if (event.key === "-") zoom(1.25);
    else if (event.key === "0") fit();
    else {
      const shape = at(event.target);
      if (!shape || !canvas.contains(shape)) return;
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        open(meant(shape.dataset.id));
      }
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const stops = shapes.filter((each) => each.hasAttribute("tabindex"));
      const next = stops[stops.indexOf(shape) + step];
      if (next) next.focus();
    }
  });

  fit();
})();
