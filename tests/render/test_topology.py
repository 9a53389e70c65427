"""The picture of a cluster, without a browser: what is on it, what a plan changes, no text that is markup."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from render.tools import needs
from render.topology_clusters import CHANGES, SHIPPED, draw, made_up, shipped

from infra.drive import dot
from infra.errors import DriveError, ToolError
from infra.model import Cluster
from infra.render.topology import dot_source
from infra.render.topology.graph import ACTIONS, COLOURS

pytestmark = needs("graphviz", "dot")

HOSTILE = (
    "\"'><script>alert(1)</script><img src=x onerror=alert(1)>]]>&amp;{{ 7 }}\\N\x00\x1b\ufffe\u2028é日本"
)
SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg: str) -> dict[str, list[ElementTree.Element]]:
    """What is drawn, by element: its shapes and its texts."""
    found: dict[str, list[ElementTree.Element]] = {}
    for element in ElementTree.fromstring(svg).iter(f"{SVG}a"):
        found.setdefault(element.attrib["data-id"], []).extend(element)
    return found


class Page(HTMLParser):
    """Every tag and attribute of a page, and the text of each table row by its id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.rows: dict[str, str] = {}
        self.row = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "tr" and (name := dict(attrs).get("id")):
            self.row = name
            self.rows[name] = ""

    def handle_data(self, data: str) -> None:
        if self.row:
            self.rows[self.row] += data

    def handle_endtag(self, tag: str) -> None:
        self.row = "" if tag == "tr" else self.row


def expected(cluster: Cluster) -> set[str]:
    """The elements as ``infra.render.topology.render`` names them."""
    ids = {region.name for region in cluster.regions} | {site.name for site in cluster.sites}
    ids |= {f"{group.site}/{group.pool}" for pool in cluster.pools for group in pool.groups}
    ids |= {f"{region.name}/subnets/{each.name}" for region in cluster.regions for each in region.subnets}
    ids |= {f"{site.name}/nodes/{node.name}" for site in cluster.sites for node in site.nodes}
    ids |= {f"link/{link.name}" for link in cluster.network.links}
    ids |= {f"link/{each.link}" for gateway in cluster.gateways for each in gateway.tunnels}
    ids |= {f"peering/{peering.name}" for peering in cluster.network.peerings}
    ids |= {f"{machine.site}/machines/{machine.hostname}" for machine in cluster.instances}
    ids |= {f"{each.site}/efs/{each.name}" for each in cluster.storage.efs}
    ids |= {f"{each.site}/s3/{each.name}" for each in cluster.storage.s3}
    ids |= {f"{each.site}/nfs/{each.name}" for each in cluster.storage.nfs}
    ids |= {f"access/clients/{server.site}" for server in cluster.access.vpn.servers}
    ids |= {f"access/groups/{group.name}" for group in cluster.access.vpn.groups}
    return ids | {"access/clients"}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_element_is_drawn_and_has_a_row(name: str) -> None:
    cluster = shipped(name)
    files = draw(cluster)
    assert list(files) == ["topology.html", "topology.svg"]
    shown = drawn(files["topology.svg"])
    assert set(shown) == expected(cluster)
    assert all(parts[0].tag == f"{SVG}title" for parts in shown.values())
    ranges = {"supernet", "kubernetes/pods", "kubernetes/services"}
    assert expected(cluster) | ranges <= set(Page(files["topology.html"]).rows)


def test_a_row_has_the_address_the_place_and_the_facts() -> None:
    rows = Page(draw(shipped("research"))["topology.html"]).rows
    for name, facts in {
        "us-west-2": ("10.2.0.0/16", "us-west-2a", "AS 64514"),
        "rack-a/nodes/titan-a01": ("rack-a", "10.200.0.11", "TITAN X (Pascal)"),
        "us-west-2/gpu-p5": ("us-west-2", "p5.48xlarge", "0\N{EN DASH}8", "on-demand"),
        "link/rack-a-eu-west-1": ("169.254.0.4/30", "198.51.100.10", "AS 65010"),
        "us-west-2/subnets/public-us-west-2a": ("10.2.48.0/24", "internet gateway"),
        "access/groups/researchers": ("alan", "10.4.0.0/14"),
    }.items():
        assert all(fact in rows[name] for fact in facts), (name, rows[name])


def test_a_cluster_without_kubernetes_has_no_ranges_of_it() -> None:
    files = draw(shipped("machines"))
    assert "kubernetes/pods" not in Page(files["topology.html"]).rows
    assert "lab/nodes/titan-01" in drawn(files["topology.svg"])


def test_the_same_cluster_gives_the_same_graph() -> None:
    backwards = dict(reversed(CHANGES.items()))
    assert dot_source(shipped("research"), CHANGES) == dot_source(shipped("research"), backwards)


def test_what_a_plan_changes_has_its_sign_and_its_colour() -> None:
    files = draw(shipped("research"), CHANGES)
    plain = draw(shipped("research"))
    shown, rows = drawn(files["topology.svg"]), Page(files["topology.html"]).rows
    for name, action in CHANGES.items():
        sign, word = ACTIONS[action]
        colour = COLOURS[action][0]
        assert any(colour in (part.get("fill"), part.get("stroke")) for part in shown[name]), name
        assert rows[name].endswith(f"{sign} {word}"), name
        # Not by colour alone.
        assert any(
            str(part.text).strip().startswith(sign) for part in shown[name] if part.tag == f"{SVG}text"
        ), name
    assert not {COLOURS[action][0] for action in ACTIONS} & set(
        re.findall("#[0-9a-f]{6}", plain["topology.svg"].split("</style>")[1])
    )


def test_many_places_are_drawn_in_brief_with_the_number_of_changes(tmp_path: Path) -> None:
    cluster = made_up(tmp_path, 30, 50)
    changes = {"eu-west-1/cpu": "add", "eu-west-1/subnets/public-eu-west-1a": "add", "rack-03": "destroy"}
    files = draw(cluster, changes)
    shown = drawn(files["topology.svg"])
    places = {region.name for region in cluster.regions} | {site.name for site in cluster.sites}
    assert set(shown) == places | {"access/clients"}
    texts = {name: " ".join(str(part.text) for part in parts) for name, parts in shown.items()}
    assert "+2" in texts["eu-west-1"]
    assert f"{ACTIONS['destroy'][0]}1" in texts["rack-03"]
    assert expected(cluster) <= set(Page(files["topology.html"]).rows)
    assert len(files["topology.svg"]) < 200_000


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(ValueError, match="explode"):
        dot_source(shipped("minimal"), {"us-west-2": "explode"})


def test_what_is_made_and_is_not_in_the_picture_is_not_what_goes() -> None:
    files = draw(shipped("research"), {"us-west-2/s3/etcd.snapshots": "add", "us-west-2": "add"})
    assert "us-west-2/s3/etcd.snapshots" not in Page(files["topology.html"]).rows


def test_hostile_names_stay_text() -> None:
    cluster = shipped("local")
    hostile = replace(
        cluster,
        name=HOSTILE,
        sites=(replace(cluster.sites[0], location=HOSTILE),),
        storage=replace(cluster.storage, s3=(replace(cluster.storage.s3[0], bucket=HOSTILE, path=HOSTILE),)),
        pools=(replace(cluster.pools[0], image=HOSTILE), *cluster.pools[1:]),
    )
    files = draw(hostile, {HOSTILE: "destroy"})
    printable = re.sub("[\x00\x1b\ufffe]", "\ufffd", HOSTILE)
    shown = drawn(files["topology.svg"])
    assert printable in shown
    assert any(printable in str(part.text) for part in shown["lab"])
    page = Page(files["topology.html"])
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert "onerror" not in page.attributes
    assert printable in page.rows["lab"]
    assert not any(bad in text for text in files.values() for bad in "\x00\x1b\ufffe")


def test_the_page_admits_its_own_style_and_script_and_nothing_else() -> None:
    page = draw(shipped("minimal"))["topology.html"]
    policy, style, script = (
        re.search(pattern, page, re.DOTALL)
        for pattern in (r'Policy" content="([^"]*)"', r"<style>(.*?)</style>", r"<script>(.*?)</script>")
    )
    assert policy
    assert style
    assert script
    digests = [
        "sha256-" + base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode()
        for text in (style, script)
    ]
    assert policy[1].replace("&#39;", "'").split("; ") == [
        "default-src 'none'",
        f"style-src '{digests[0]}'",
        f"script-src '{digests[1]}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert not re.search(r"https?://(?!www\.w3\.org/(2000/svg|1999/xlink))", page)


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours (WCAG 2.2, definitions)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
def test_colours_have_the_contrast_that_wcag_aa_asks_for(side: int) -> None:
    colours = {name: pair[side] for name, pair in COLOURS.items()}
    for ground in ("paper", "card", "plain", "regions", "sites"):
        assert contrast(colours["ink"], colours[ground]) >= 4.5, ground
    for ground in ("paper", "card"):
        assert contrast(colours["soft"], colours[ground]) >= 4.5, ground
        for line in ("vpn", "peering", "access", *ACTIONS):
            assert contrast(colours[line], colours[ground]) >= 4.5, line
    assert len({light for light, _ in COLOURS.values()}) == len(COLOURS)


def test_without_dot_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DriveError, match="apt install graphviz"):
        dot.svg("graph {}")


def test_what_dot_refuses_is_an_error_with_its_words() -> None:
    with pytest.raises(ToolError, match="syntax error"):
        dot.svg("graph {")
