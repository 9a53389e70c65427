"""Edits of a spec: parts left out, the rest in another order, and nothing left that names what is gone."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from strategies.specs import Plain


@st.composite
def edited(draw: st.DrawFn, whole: Plain) -> Plain:
    """A sound spec with some of the sites, regions, zones, pools, groups and users of ``whole``."""
    sites = _some(draw, whole["sites"])
    aws = [name for name, site in whole["sites"].items() if site["kind"] == "aws"]
    if not any(name in sites for name in aws):
        sites[aws[0]] = whole["sites"][aws[0]]
    for name, site in sites.items():
        if site["kind"] == "aws":
            sites[name] = _fewer_zones(draw, site)
        else:
            sites[name] = {**site, "nodes": _shuffled(draw, site["nodes"])}
    access = whole["access"]
    spec = {
        **whole,
        "sites": sites,
        "pools": _some(draw, whole["pools"]),
        "access": {
            **access,
            "users": _some(draw, access["users"]),
            "groups": _shuffled(draw, access["groups"]),
        },
    }
    return {key: _pruned(spec)[key] for key in draw(st.permutations(list(spec)))}


def _some(draw: st.DrawFn, parts: Plain) -> Plain:
    chosen = draw(st.lists(st.sampled_from(sorted(parts)), unique=True)) if parts else []
    return {name: parts[name] for name in chosen}


def _shuffled(draw: st.DrawFn, parts: Plain) -> Plain:
    return {name: parts[name] for name in draw(st.permutations(list(parts)))}


def _fewer_zones(draw: st.DrawFn, site: Plain) -> Plain:
    zones = site.get("zones")
    if not zones:
        return site
    # A stated block may meet what was allocated while it was not stated: that is told, and no move.
    stated = list(site.get("explicit_subnets", ()))
    left = draw(st.lists(st.sampled_from(zones), unique=True, min_size=1))
    return {**site, "zones": [*left, *(zone for zone in stated if zone not in left)]}


def _pruned(spec: Plain) -> Plain:
    """Without what names a site that is gone, and with one primary region."""
    sites = {name: dict(site) for name, site in spec["sites"].items()}
    aws = sorted(name for name, site in sites.items() if site["kind"] == "aws")
    joined = {name for name, site in sites.items() if "gateway" in site}
    for name in aws:
        site = sites[name]
        if "vpn" in site:
            site["vpn"] = [each for each in site["vpn"] if each in joined]
    if not any(sites[name].get("primary") for name in aws):
        # Masters that let machines join in other regions need a way out (SITE032).
        nat = {"nat": "one"} if len(aws) > 1 and sites[aws[0]].get("nat") == "none" else {}
        sites[aws[0]] = {**sites[aws[0]], "primary": True, "overflow": None, **nat}
    pools = {
        name: {**pool, "regions": _here(pool["regions"], aws)}
        for name, pool in spec["pools"].items()
        if _here(pool["regions"], aws)
    }
    storage, access = spec["storage"], spec["access"]
    efs = {
        name: {**each, "regions": [site for site in each["regions"] if site in aws]}
        if "regions" in each
        else each
        for name, each in storage["efs"].items()
    }
    return {
        **spec,
        "sites": sites,
        "pools": pools,
        "storage": {
            "efs": {name: each for name, each in efs.items() if each.get("regions") != []},
            "s3": {name: each for name, each in storage["s3"].items() if each.get("region", aws[0]) in aws},
            "nfs": {name: each for name, each in storage.get("nfs", {}).items() if each["site"] in sites},
        },
        "access": {
            **access,
            "ssh_nodes": {
                name: each for name, each in access["ssh_nodes"].items() if each.get("site", aws[0]) in aws
            },
        },
    }


def _here(parts: Plain, sites: list[str]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if name in sites}
