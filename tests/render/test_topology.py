"""The picture of a cluster, without a browser: what is on it, where, and that nothing breaks out of it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

import pytest
from golden_folders import assert_text
from msgspec.structs import replace
from render.topology_clusters import CHANGES, SHIPPED, data, made_up, shipped

from infra.model import Cluster
from infra.render.templating import TEMPLATES
from infra.render.topology import render
from infra.render.topology.layout import lay_out
from infra.render.topology.measure import cut, width
from infra.render.topology.page import tell
from infra.render.topology.shapes import Picture

MESSAGES = Path(__file__).parents[1] / "messages" / "topology.txt"
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>]]>&amp;{{ 7 }}\x00\x1b\ufffe\u2028é日本"


def drawn(svg: str) -> set[str]:
    return {name for element in ElementTree.fromstring(svg).iter() if (name := element.get("data-id"))}


def laid_out(cluster: Cluster, changes: dict[str, str] | None = None) -> Picture:
    return lay_out(cluster, tell(cluster), changes or {})


def expected(cluster: Cluster) -> set[str]:
    """Every element of a cluster that is small enough to be drawn in full."""
    ids = {region.name for region in cluster.regions} | {site.name for site in cluster.sites}
    ids |= {f"{group.site}/{group.pool}" for pool in cluster.pools for group in pool.groups}
    ids |= {f"{region.name}/subnets/{each.name}" for region in cluster.regions for each in region.subnets}
    ids |= {f"{site.name}/nodes/{node.name}" for site in cluster.sites for node in site.nodes}
    ids |= {f"link/{link.name}" for link in cluster.network.links}
    ids |= {f"link/{tunnel.link}" for gateway in cluster.gateways for tunnel in gateway.tunnels}
    ids |= {f"peering/{peering.name}" for peering in cluster.network.peerings}
    machines = [*cluster.ssh_nodes, *cluster.access_gateways]
    machines += cluster.control_plane.masters if cluster.control_plane else ()
    ids |= {f"{machine.site}/machines/{machine.hostname}" for machine in machines}
    ids |= {f"{each.site}/efs/{each.name}" for each in cluster.storage.efs}
    ids |= {f"{each.site}/s3/{each.name}" for each in cluster.storage.s3}
    ids |= {f"{each.site}/nfs/{each.name}" for each in cluster.storage.nfs}
    ids |= {f"access/clients/{server.site}" for server in cluster.access.vpn.servers}
    ids |= {f"access/groups/{group.name}" for group in cluster.access.vpn.groups}
    return ids | {"supernet", "kubernetes/pods", "kubernetes/services", "access/clients"}


@pytest.mark.parametrize("name", SHIPPED)
def test_everything_is_drawn_and_told(name: str) -> None:
    cluster = shipped(name)
    files = render(cluster)
    assert list(files) == ["topology.html", "topology.svg"]
    assert expected(cluster) <= drawn(files["topology.svg"])
    known = set(data(files["topology.html"]))
    assert expected(cluster) | drawn(files["topology.svg"]) <= known


def test_relations_lead_somewhere() -> None:
    known = data(render(shipped("research"))["topology.html"])
    for item in known.values():
        assert set(item.get("related", ())) <= set(known), item["id"]
        assert {item["parent"]} <= set(known) if "parent" in item else True


def words(element: ElementTree.Element) -> Iterator[str]:
    """What is written on a drawing, but for its marks."""
    if element.tag.endswith("}text"):
        yield "".join(element.itertext()).strip()
    for inner in element:
        if "mark" not in str(inner.get("class")).split():
            yield from words(inner)


def test_what_is_told(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Of each kind of thing one, the one with most to tell; what is written on drawings of some clusters."""
    research = shipped("research")
    changed = render(research, CHANGES)
    items = data(changed["topology.html"]).values()
    lines = []
    for kind in sorted({item["kind"] for item in items}):
        item = max((one for one in items if one["kind"] == kind), key=lambda one: len(one.get("facts", ())))
        facts = [f"{name}: {value}" for name, value in item.get("facts", ())]
        lines.append(f"{item['id']} ({kind}): " + " | ".join([item["title"], item.get("note", ""), *facts]))
    transit = "network: {interconnect: transit-gateway, routing: static}"
    for name, files in {
        "research, changed": changed,
        "1 region, 2 sites, static": render(made_up(tmp_path, 1, 2, "network: {routing: static}")),
        "2 regions, 5 sites": render(made_up(tmp_path, 2, 5)),
        "3 regions, 1 site, transit, static": render(made_up(tmp_path, 3, 1, transit)),
        "30 regions, 50 sites": render(made_up(tmp_path, 30, 50)),
    }.items():
        svg = ElementTree.fromstring(files["topology.svg"])
        lines.append(f"{name}: " + " | ".join(dict.fromkeys(words(svg))))
    assert_text(MESSAGES, "\n".join(lines) + "\n", rewrite=request.config.getoption("--update-golden"))


def test_two_addresses_a_site_give_two_lanes_and_static_routes_are_dashed(tmp_path: Path) -> None:
    cluster = made_up(tmp_path, 1, 2, spare=True)
    wires = {wire.id: wire for wire in laid_out(cluster).wires if wire.look.startswith("tunnel")}
    assert list(wires) == ["link/rack-00-rack-01", "link/rack-00-rack-01-2"]
    assert {wire.look for wire in wires.values()} == {"tunnel bgp"}
    one, other = (corners(wire.d) for wire in wires.values())
    assert not any(cross(a, b) for a in pairwise(one) for b in pairwise(other))
    static = laid_out(made_up(tmp_path, 1, 2, "network: {routing: static}"))
    assert [wire.look for wire in static.wires if wire.look.startswith("tunnel")] == ["tunnel static"]


def test_sites_without_a_mesh_have_no_tunnels_between(tmp_path: Path) -> None:
    for sites in (2, 5):
        cluster = made_up(tmp_path, 2, sites, "network: {site_mesh: false}")
        files = render(cluster)
        assert not any(item["kind"] == "site tunnel" for item in data(files["topology.html"]).values())
        assert 'class="wire tunnel' not in files["topology.svg"]


def test_a_row_of_sites_shares_a_lane_that_ends_at_its_last_site(tmp_path: Path) -> None:
    picture = laid_out(made_up(tmp_path, 2, 5))
    paths = {wire.id: corners(wire.d) for wire in picture.wires if wire.id.startswith("bus/sites/")}
    assert set(paths) == {f"bus/sites/rack-{index:02}" for index in range(5)}
    assert {path[-1] for path in paths.values()} == {paths["bus/sites/rack-04"][-1]}
    (last,) = (mark.rects[0] for mark in picture.marks if mark.id == "rack-04")
    assert last.x < paths["bus/sites/rack-04"][-1][0] < last.x + last.w


def test_the_same_cluster_gives_the_same_bytes() -> None:
    backwards = dict(reversed(CHANGES.items()))
    assert render(shipped("research"), CHANGES) == render(shipped("research"), backwards)


def test_many_places_are_drawn_in_brief_and_told_in_full(tmp_path: Path) -> None:
    cluster = made_up(tmp_path, 30, 50)
    files = render(cluster)
    shown, known = drawn(files["topology.svg"]), data(files["topology.html"])
    assert expected(cluster) <= set(known)
    assert {region.name for region in cluster.regions} | {site.name for site in cluster.sites} <= shown
    assert not any(name.startswith(("link/", "peering/")) for name in shown)
    assert {f"bus/vpn/{site.name}" for site in cluster.sites} <= shown
    hub = cluster.regions[0].name
    link = known[f"link/rack-07-{hub}"]
    assert link["via"] == ["bus/vpn/rack-07", f"bus/vpn/{hub}"]
    assert {f"bus/sites/{site.name}" for site in cluster.sites} <= shown
    assert known["link/rack-07-rack-12"]["via"] == ["bus/sites/rack-07", "bus/sites/rack-12"]
    assert sum(item["kind"] == "site tunnel" for item in known.values()) == 1225
    assert len(files["topology.svg"]) < 200_000


@pytest.mark.parametrize(
    ("regions", "sites"), [(1, 0), (1, 2), (2, 1), (3, 2), (3, 3), (4, 1), (7, 4), (30, 9)]
)
def test_places_stand_apart_and_inside_the_picture(tmp_path: Path, regions: int, sites: int) -> None:
    picture = laid_out(made_up(tmp_path, regions, sites))
    frames = [mark.rects[0] for mark in picture.marks if mark.look.startswith("place ")]
    assert len(frames) == regions + sites + 1
    for one, other in combinations(frames, 2):
        assert (
            one.x + one.w < other.x
            or other.x + other.w < one.x
            or one.y + one.h < other.y
            or other.y + other.h < one.y
        ), (one, other)
    for frame in frames:
        assert frame.x > 0
        assert frame.x + frame.w < picture.width
        assert frame.y + frame.h < picture.height


def test_the_lanes_of_a_site_do_not_cross_where_they_come_down() -> None:
    paths = {wire.id: corners(wire.d) for wire in laid_out(shipped("research")).wires if "vpn" in wire.look}
    for site in ("rack-a", "rack-b"):
        mine = [path for name, path in paths.items() if name.startswith(f"link/{site}-")]
        assert len(mine) == 3
        for one, other in combinations(mine, 2):
            assert not any(cross(a, b) for a in pairwise(one[1:]) for b in pairwise(other[1:])), site


Stretch: TypeAlias = tuple[tuple[int, int], tuple[int, int]]


def corners(path: str) -> list[tuple[int, int]]:
    """Where a rounded path would turn if it were not rounded."""
    points = [*re.findall(r"[MQ](\d+) (\d+)", path), re.findall(r"L(\d+) (\d+)", path)[-1]]
    return [(int(x), int(y)) for x, y in points]


def cross(one: Stretch, other: Stretch) -> bool:
    """Whether two stretches, each upright or level, have a point in common."""
    return all(
        max(min(one[0][axis], one[1][axis]), min(other[0][axis], other[1][axis]))
        <= min(max(one[0][axis], one[1][axis]), max(other[0][axis], other[1][axis]))
        for axis in (0, 1)
    )


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(ValueError, match="explode"):
        render(shipped("minimal"), {"us-west-2": "explode"})


def test_what_a_plan_changes_is_marked() -> None:
    files = render(shipped("research"), CHANGES)
    svg = ElementTree.fromstring(files["topology.svg"])
    marks = {element.get("data-id"): element for element in svg.iter() if element.get("role") == "img"}
    for name, action in CHANGES.items():
        assert action in str(marks[name].get("class")).split(), name


def test_a_box_counts_the_changes_inside(tmp_path: Path) -> None:
    cluster = made_up(tmp_path, 30, 10)
    changes = {"eu-west-1/cpu": "add", "eu-west-1/subnets/public-eu-west-1a": "add", "rack-03": "destroy"}
    badges = {mark.id: mark.badges for mark in laid_out(cluster, changes).marks if mark.badges}
    assert {name: [badge.text for badge in found] for name, found in badges.items()} == {
        "eu-west-1": ["+2"],
        "rack-03": ["−1"],  # noqa: RUF001 (a minus sign)
    }


class Tags(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def test_hostile_names_stay_text() -> None:
    cluster = shipped("local")
    site = replace(cluster.sites[0], location=HOSTILE)
    bucket = replace(cluster.storage.s3[0], bucket=HOSTILE, path=HOSTILE)
    pool = replace(cluster.pools[0], image=HOSTILE)
    hostile = replace(
        cluster,
        name=HOSTILE,
        sites=(site,),
        storage=replace(cluster.storage, s3=(bucket,)),
        pools=(pool, *cluster.pools[1:]),
    )
    files = render(hostile, {HOSTILE: "destroy"})
    assert ElementTree.fromstring(files["topology.svg"]).tag == "{http://www.w3.org/2000/svg}svg"
    parsed = Tags()
    parsed.feed(files["topology.html"])
    assert parsed.tags.count("script") == 2
    assert "img" not in parsed.tags
    assert "onerror" not in parsed.attributes
    assert dict(data(files["topology.html"])["lab"]["facts"])["Location"] == HOSTILE.replace(
        "\ufffe", "\ufffd"
    )
    for text in files.values():
        assert "\x00" not in text
        assert "\ufffe" not in text


def test_the_page_admits_its_own_style_and_script_and_nothing_else() -> None:
    page = render(shipped("minimal"))["topology.html"]
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    assert policy
    assert style
    assert script
    rules = policy[1].replace("&#39;", "'").split("; ")
    assert rules == [
        "default-src 'none'",
        f"style-src '{digest(style[1])}'",
        f"script-src '{digest(script[1])}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def palettes() -> list[dict[str, str]]:
    """The light and the dark colours by name."""
    css = (TEMPLATES / "topology" / "colours.css").read_text()
    return [dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", half)) for half in css.split("@media")]


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2, definitions)."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("index", [0, 1], ids=["light", "dark"])
def test_colours_have_the_contrast_that_wcag_aa_asks_for(index: int) -> None:
    colours = palettes()[index]
    for text in ("ink", "soft", "region"):
        for ground in ("paper", "card", "tint"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for action in ("add", "change", "replace", "destroy"):
        assert contrast(colours["on"], colours[action]) >= 4.5, action
    for line in ("vpn", "peering", "door", "focus"):
        assert contrast(colours[line], colours["paper"]) >= 3, line
    assert contrast(colours["ink"], colours["hit"]) >= 4.5


@pytest.mark.parametrize("look", ["body", "mono", "small"])
def test_text_is_cut_to_its_room(look: str) -> None:
    assert cut("titan-a01", look, 200) == "titan-a01"
    short = cut("a-very-long-name-日本-that-goes-on", look, 80)
    assert short.endswith("…")
    assert width(short, look) <= 80


def test_what_is_made_and_has_no_place_in_the_picture_is_not_struck_through() -> None:
    files = render(shipped("research"), {"us-west-2/s3/etcd.snapshots": "add", "us-west-2": "add"})
    assert "us-west-2/s3/etcd.snapshots" not in data(files["topology.html"])
    assert "No longer" not in files["topology.svg"]
