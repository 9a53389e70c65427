"""The page in a real browser: quiet, in light and dark; filter and zoom; text that stays in its cell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import chromium
from render.topology_clusters import CHANGES, draw, made_up, shipped
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from infra.model import Cluster
from infra.render.topology.graph import COLOURS


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    """A headless Chromium of 1440 by 900."""
    with chromium() as driver:
        yield driver


class Page:
    """The page, as somebody uses it."""

    def __init__(self, browser: WebDriver, folder: Path, cluster: Cluster, changes: dict[str, str]) -> None:
        self.browser = browser
        for name, text in draw(cluster, changes).items():
            (folder / name).write_text(text, encoding="utf-8")
        self.address = (folder / "topology.html").as_uri()
        self.log("performance")
        browser.get(self.address)

    def log(self, kind: str) -> list[dict[str, str]]:
        """What the browser noted since it was last asked."""
        entries: list[dict[str, str]] = self.browser.get_log(kind)  # type: ignore[no-untyped-call]
        return entries

    def ids(self, selector: str, attribute: str) -> set[str]:
        found = self.browser.find_elements(By.CSS_SELECTOR, selector)
        return {str(each.get_dom_attribute(attribute)) for each in found}

    def filter(self, text: str) -> None:
        field = self.browser.find_element(By.ID, "query")
        field.send_keys(Keys.ESCAPE, text)

    def width(self) -> float:
        return float(self.browser.find_element(By.CSS_SELECTOR, "#picture svg").size["width"])


@pytest.fixture(scope="module")
def page(browser: WebDriver, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The research environment with a plan's changes."""
    return Page(browser, tmp_path_factory.mktemp("research"), shipped("research"), CHANGES)


def test_it_opens_quietly_in_light_and_dark(page: Page) -> None:
    for side, scheme in enumerate(("light", "dark")):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        colours = page.browser.execute_script(
            """const digits = (part) => (+part).toString(16).padStart(2, "0");
            return arguments[0].map(([selector, what]) => {
              const colour = getComputedStyle(document.querySelector(selector))[what];
              return "#" + colour.match(/\\d+/g).map(digits).join("");
            });""",
            [
                ("body", "backgroundColor"),
                ("svg polygon", "fill"),
                ('[data-id="us-west-2"] text', "fill"),
                ('[data-id="link/rack-b-us-west-2"] path', "stroke"),
                (".plan.add", "color"),
            ],
        )
        assert colours == [COLOURS[name][side] for name in ("paper", "paper", "ink", "vpn", "add")]
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert page.log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in page.log("performance")]
    asked = {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }
    assert {url for url in asked if not url.startswith("data:")} == {page.address}


@pytest.mark.parametrize(
    ("text", "drawn", "rows"),
    [
        ("titan-a01", {"rack-a/nodes/titan-a01"}, set()),
        ("10.200.4.18", {"rack-b/nodes/titan-b08", "rack-b"}, {"supernet"}),
        ("SPOT g5.12", {f"{region}/gpu-g5" for region in ("us-west-2", "us-east-1", "eu-west-1")}, set()),
        ("nothing like this", set(), set()),
    ],
)
def test_the_filter_finds_names_facts_and_the_blocks_of_an_address(
    page: Page, text: str, drawn: set[str], rows: set[str]
) -> None:
    page.filter(text)
    assert page.ids("#picture a.hit", "data-id") == drawn
    assert page.ids("tbody tr:not([hidden])", "id") == drawn | rows
    page.filter("")
    assert page.ids("tbody tr:not([hidden])", "id") == page.ids("tbody tr", "id")


def test_an_element_leads_to_its_row_by_mouse_and_keyboard(page: Page) -> None:
    link = page.browser.find_element(By.CSS_SELECTOR, '[data-id="us-west-2/gpu-p5"]')
    link.find_element(By.CSS_SELECTOR, "text").click()
    assert page.ids("tr:target", "id") == {"us-west-2/gpu-p5"}
    other = page.browser.find_element(By.CSS_SELECTOR, '[data-id="rack-a"]')
    other.send_keys(Keys.ENTER)
    assert page.ids("tr:target", "id") == {"rack-a"}


def test_zoom_and_fit(page: Page) -> None:
    first = page.width()
    page.browser.find_element(By.ID, "in").click()
    assert page.width() == pytest.approx(first * 1.25, abs=1)
    page.browser.find_element(By.TAG_NAME, "body").send_keys("0")
    assert page.width() == first
    page.browser.find_element(By.ID, "out").click()
    assert page.width() < first
    page.browser.find_element(By.ID, "fit").click()


@pytest.mark.parametrize("name", ["research", "many"])
def test_text_stays_in_its_cell_and_can_be_read(browser: WebDriver, tmp_path: Path, name: str) -> None:
    cluster = shipped("research") if name == "research" else made_up(tmp_path, 30, 50)
    page = Page(browser, tmp_path, cluster, {"us-west-2/gpu-p5": "replace"})
    outside = browser.execute_script(
        """return [...document.querySelectorAll("#picture a[data-id]")].flatMap((link) => {
          const cell = link.querySelector("polygon")?.getBBox();
          return cell ? [...link.querySelectorAll("text")].filter((text) => {
            const box = text.getBBox();
            return box.x < cell.x - 1 || box.x + box.width > cell.x + cell.width + 1;
          }).map((text) => `${link.dataset.id}: ${text.textContent}`) : [];
        });"""
    )
    assert outside == []
    size = browser.execute_script(
        """return Math.min(...[...document.querySelectorAll("#picture a[data-id] text")]
          .map((text) => text.getBoundingClientRect().height));"""
    )
    assert size >= 10
    assert page.width() <= 1440
