"""The page in a real browser: it searches, tells, lights up, and asks the network for nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import chromium
from render.topology_clusters import CHANGES, SHIPPED, data, made_up, shipped
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from infra.model import Cluster
from infra.render.topology import render

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    """A headless Chromium of 1440 by 900."""
    with chromium() as driver:
        yield driver


class Page:
    """The page, as somebody uses it."""

    def __init__(self, browser: WebDriver, folder: Path, cluster: Cluster, changes: dict[str, str]) -> None:
        self.browser = browser
        files = render(cluster, changes)
        self.items = data(files["topology.html"])
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        self.address = (folder / "topology.html").as_uri()
        self.log("performance")
        browser.get(self.address)

    def one(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def element(self, name: str) -> WebElement:
        return self.one(f'.mark[data-id="{name}"], .wire[data-id="{name}"]')

    def ids(self, selector: str) -> set[str]:
        elements = self.browser.find_elements(By.CSS_SELECTOR, selector)
        return {name for element in elements if (name := element.get_dom_attribute("data-id"))}

    def hover(self, name: str, right: int = 0, down: int = 0) -> None:
        ActionChains(self.browser).move_to_element_with_offset(self.element(name), right, down).perform()
        self.wait(lambda: name in self.ids(".at"))

    def hover_line(self, name: str) -> None:
        """Point at the middle of a line's path."""
        where = self.browser.execute_script(
            """const path = document.querySelector(`.wire[data-id="${arguments[0]}"] .line`);
            const near = path.getPointAtLength(path.getTotalLength() * 0.9);
            const at = near.matrixTransform(path.getScreenCTM());
            return [Math.round(at.x), Math.round(at.y)];""",
            name,
        )
        actions = ActionChains(self.browser)
        actions.w3c_actions.pointer_action.move_to_location(*where)  # type: ignore[no-untyped-call]
        actions.perform()
        self.wait(lambda: name in self.ids(".at"))

    def search(self, text: str) -> None:
        field = self.one("#query")
        field.clear()
        field.send_keys(text)

    def wait(self, ready: object) -> None:
        assert callable(ready)
        WebDriverWait(self.browser, 5).until(lambda _: ready())

    def tells(self, name: str) -> bool:
        """Whether the tooltip has each fact of an element, and no other."""
        terms = [term.text for term in self.browser.find_elements(By.CSS_SELECTOR, "#tip dt")]
        values = [value.text for value in self.browser.find_elements(By.CSS_SELECTOR, "#tip dd")]
        return list(zip(terms, values, strict=True)) == [tuple(fact) for fact in self.items[name]["facts"]]

    def log(self, kind: str) -> list[dict[str, str]]:
        """What the browser noted since it was last asked."""
        entries: list[dict[str, str]] = self.browser.get_log(kind)  # type: ignore[no-untyped-call]
        return entries

    def quiet(self) -> None:
        """No complaint on the console, nothing asked of any network."""
        assert self.log("browser") == []
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        asked = [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]
        assert self.address in asked
        assert [url for url in asked if url != self.address and not url.startswith("data:")] == []


@pytest.fixture(scope="module")
def research(browser: WebDriver, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return Page(browser, tmp_path_factory.mktemp("research"), shipped("research"), CHANGES)


@pytest.fixture
def page(research: Page) -> Page:
    """The research environment with a plan's changes, as first opened."""
    research.browser.get(research.address)
    return research


@pytest.mark.parametrize("name", SHIPPED)
def test_it_opens_quietly_in_light_and_dark(browser: WebDriver, tmp_path: Path, name: str) -> None:
    page = Page(browser, tmp_path, shipped(name), {})
    pictures = []
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        shot = tmp_path / f"{name}-{scheme}.png"
        assert browser.save_screenshot(str(shot))
        pictures.append(shot.read_bytes())
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert all(picture.startswith(PNG) for picture in pictures)
    assert pictures[0] != pictures[1]
    page.quiet()


def test_pointing_at_a_pool_tells_of_it_and_lights_it_up_elsewhere(page: Page) -> None:
    page.hover("us-west-2/gpu-p3")
    assert page.tells("us-west-2/gpu-p3")
    assert page.ids(".lit") == {f"{region}/gpu-p3" for region in ("us-west-2", "us-east-1", "eu-west-1")}


def test_a_line_lights_up_with_its_ends(page: Page) -> None:
    page.hover_line("link/rack-b-eu-west-1")
    assert page.ids(".wire.lit") == {"link/rack-b-eu-west-1"}
    assert page.ids(".place.lit") == {"rack-b", "eu-west-1"}
    assert page.tells("link/rack-b-eu-west-1")
    assert len(page.browser.find_elements(By.CSS_SELECTOR, ".raised .wire")) == 1


def test_a_place_lights_up_with_its_lines_and_what_they_lead_to(page: Page) -> None:
    size = page.element("rack-b").size
    page.hover("rack-b", right=int(size["width"] * 0.3), down=-int(size["height"] / 2) + 12)
    regions = {"us-west-2", "us-east-1", "eu-west-1"}
    assert page.ids(".wire.lit") == {f"link/rack-b-{end}" for end in regions} | {"link/rack-a-rack-b"}
    assert page.ids(".place.lit") == {"rack-a", "rack-b"} | regions


def test_a_change_is_told(page: Page) -> None:
    page.hover("us-west-2/gpu-p5")
    assert page.one("#tip .sign").text == "±"


def test_an_address_is_found_in_its_subnet(page: Page) -> None:
    blocks = {subnet.name: subnet.block for subnet in shipped("research").region("us-west-2").subnets}
    page.search(str(blocks["private-us-west-2b"][77]))
    assert page.one("#found").text == "3 found"
    assert page.ids(".mark.hit") == {"us-west-2/subnets/private-us-west-2b", "us-west-2", "supernet"}
    page.one("#query").send_keys(Keys.ENTER)
    assert page.one("#panel h2").text == "private-us-west-2b"
    assert page.one("#panel dd").text == str(blocks["private-us-west-2b"])


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("titan-a01", {"rack-a/nodes/titan-a01"}),
        ("10.200.4.18", {"rack-b/nodes/titan-b08", "rack-b", "supernet"}),
        ("p4d.24xlarge", {"us-west-2/gpu-p4d", "us-east-1/gpu-p4d"}),
        ("SPOT g5.12", {f"{region}/gpu-g5" for region in ("us-west-2", "us-east-1", "eu-west-1")}),
        ("nothing like this", set()),
    ],
)
def test_what_is_searched_for_is_lit(page: Page, text: str, hits: set[str]) -> None:
    page.search(text)
    assert page.ids(".mark.hit") == hits


def test_a_tunnel_between_sites_is_found_and_lights_up_with_its_ends(page: Page) -> None:
    tunnels = {each.link: each for gateway in shipped("research").gateways for each in gateway.tunnels}
    page.search(str(tunnels["rack-a-rack-b"].inside_remote))
    assert page.one("#found").text == "1 found"
    assert page.ids(".wire.hit") == {"link/rack-a-rack-b"}
    assert page.ids(".place.holds") == {"rack-a", "rack-b"}
    page.one("#query").clear()
    page.hover_line("link/rack-a-rack-b")
    assert page.ids(".wire.lit") == {"link/rack-a-rack-b"}
    assert page.ids(".place.lit") == {"rack-a", "rack-b"}
    assert page.tells("link/rack-a-rack-b")
    for right in (1, -2):  # along the line, one event each: what is drawn above it must not take them
        nudge = ActionChains(page.browser, duration=0).move_by_offset(right, 0)
        nudge.perform()
        assert page.ids(".wire.at") == {"link/rack-a-rack-b"}


def test_a_laptops_address_is_found_at_the_server_that_gave_it(page: Page) -> None:
    servers = {server.site: server for server in shipped("research").access.vpn.servers}
    page.search(str(servers["rack-a"].listeners[1].block[9]))
    assert page.ids(".mark.hit") == {"access/clients/rack-a", "access/clients"}


def test_escape_takes_back_what_was_opened(page: Page) -> None:
    page.search("titan-a01")
    page.one("#query").send_keys(Keys.ENTER)
    assert page.one("#panel").is_displayed()
    page.one("#query").send_keys(Keys.ESCAPE)
    assert not page.one("#panel").is_displayed()
    page.one("#query").send_keys(Keys.ESCAPE)
    assert page.ids(".hit") == set()
    assert page.one("#query").get_attribute("value") == ""


def test_the_keyboard_reaches_everything(page: Page) -> None:
    actions = ActionChains(page.browser)
    actions.send_keys("/").send_keys(*([Keys.TAB] * 4)).perform()
    here = page.browser.switch_to.active_element
    assert str(here.get_attribute("class")).startswith("wire")
    assert page.one("#tip").is_displayed()
    ActionChains(page.browser).send_keys(Keys.ARROW_DOWN).perform()
    there = page.browser.switch_to.active_element
    assert there.get_attribute("data-id") != here.get_attribute("data-id")
    ActionChains(page.browser).send_keys(Keys.ENTER).perform()
    assert page.one("#panel").is_displayed()


def test_zoom_and_fit(page: Page) -> None:
    def across() -> float:
        return float(str(page.one("#canvas").get_dom_attribute("viewBox")).split()[2])

    whole = across()
    page.one("#in").click()
    assert across() < whole
    page.one("#fit").click()
    assert across() == whole
    page.one("#out").click()
    assert across() > whole


def test_a_panel_leads_on_to_what_is_inside(page: Page) -> None:
    page.search("eu-west-1")
    page.one("#query").send_keys(Keys.ENTER)
    assert page.one("#panel h2").text == "eu-west-1"
    inside = page.browser.find_elements(By.CSS_SELECTOR, "#panel li button span")
    next(each for each in inside if each.text == "gpu-g5").click()
    assert page.one("#panel h2").text == "gpu-g5"


@pytest.mark.parametrize("name", ["research", "many"])
def test_text_stays_in_its_frame(browser: WebDriver, tmp_path: Path, name: str) -> None:
    cluster = shipped("research") if name == "research" else made_up(tmp_path, 30, 50)
    Page(browser, tmp_path, cluster, {})
    outside = browser.execute_script(
        """return [...document.querySelectorAll(".mark")].flatMap((mark) => {
          const frame = mark.querySelector("rect").getBBox();
          return [...mark.querySelectorAll("text")].filter((text) => {
            const box = text.getBBox();
            return box.x < frame.x - 1 || box.x + box.width > frame.x + frame.width + 1;
          }).map((text) => `${mark.dataset.id}: ${text.textContent}`);
        });"""
    )
    assert outside == []


def test_thirty_regions_can_be_read_and_searched(browser: WebDriver, tmp_path: Path) -> None:
    page = Page(browser, tmp_path, made_up(tmp_path, 30, 50), {"eu-west-1/cpu": "add"})
    assert len(page.ids(".place")) == 81
    letters = browser.execute_script(
        """return Math.min(...[...document.querySelectorAll(".place text.body")]
          .map((text) => text.getBoundingClientRect().height));"""
    )
    assert letters >= 10
    page.search("10.250.14.11")
    assert page.ids(".mark.hit") == {"rack-07", "supernet"}
    page.one("#query").send_keys(Keys.ENTER)
    assert page.one("#panel h2").text == "titan-07a"
    page.search("rack-07 – eu-west-1")  # noqa: RUF001 (an en dash)
    assert page.ids(".wire.hit") == {"bus/vpn/rack-07", "bus/vpn/eu-west-1"}
    page.search("rack-07 – rack-12")  # noqa: RUF001 (an en dash)
    assert page.ids(".wire.hit") == {"bus/sites/rack-07", "bus/sites/rack-12"}
    assert page.ids(".place.holds") == {"rack-07", "rack-12"}
    assert browser.save_screenshot(str(tmp_path / "thirty.png"))
    page.quiet()
