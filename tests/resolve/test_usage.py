"""The tree behind ``invoke addresses``."""

from __future__ import annotations

from ipaddress import IPv4Network

from infra.resolve.allocate_blocks import ANYWHERE, Request, Root, allocate
from infra.resolve.usage import Node, tree


def lines(nodes: tuple[Node, ...], depth: int = 0) -> list[str]:
    found = []
    for node in nodes:
        free = "full" if node.largest_free is None else f"{node.free} /{node.largest_free}"
        found.append(f"{'  ' * depth}{node.owner} {node.block} {node.source} {node.used}/{node.size} {free}")
        found += lines(node.children, depth + 1)
    return found


def test_the_tree_shows_sizes_use_and_what_is_held_back() -> None:
    roots = [
        Root("supernet", IPv4Network("10.0.0.0/22"), ((IPv4Network("10.0.3.0/24"), "home"),)),
        Root("links", IPv4Network("169.254.0.0/16")),
    ]
    requests = [
        Request("sites/a", "supernet", prefix=24),
        Request("sites/a/subnets/x", "sites/a", prefix=26),
        Request("sites/lab", ANYWHERE, block=IPv4Network("192.168.7.0/24")),
        Request("sites/hall", ANYWHERE, block=IPv4Network("10.0.1.0/25")),
    ]
    held = {"sites/old": IPv4Network("10.0.0.0/24"), "sites/old/subnets/x": IPv4Network("10.0.0.0/25")}
    assert lines(tree(allocate(roots, requests, held))) == [
        "supernet 10.0.0.0/22 root 896/1024 128 /25",
        "  sites/old 10.0.0.0/24 retired 128/256 128 /25",
        "    sites/old/subnets/x 10.0.0.0/25 retired 128/128 full",
        "  sites/hall 10.0.1.0/25 spec 128/128 full",
        "  sites/a 10.0.2.0/24 new 64/256 192 /25",
        "    sites/a/subnets/x 10.0.2.0/26 new 64/64 full",
        "  home 10.0.3.0/24 reserved 256/256 full",
        "links 169.254.0.0/16 root 0/65536 65536 /16",
        "sites/lab 192.168.7.0/24 spec 256/256 full",
    ]
