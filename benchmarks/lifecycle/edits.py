"""What a lab does to its spec.

Each edit changes a spec in place and says what it did; None where it is not possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from random import Random
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from benchmarks.lifecycle.project import Spec

Edit: TypeAlias = Callable[[Spec, Random], str | None]

SPARE_REGIONS: Final = ("eu-central-1", "us-east-2", "eu-west-1", "us-east-1")
"""Regions that a site may be added in."""

SSH_KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP3uQw1AvVfe6sGGzZeQAz0PBvkJqIBufObnF6t8fVAp"


def _regions(spec: Spec) -> dict[str, dict[str, Any]]:
    """Sites in AWS."""
    return {name: site for name, site in spec["sites"].items() if site["kind"] == "aws"}


def _secondary(spec: Spec) -> list[str]:
    """Regions that may go: all but the primary one."""
    regions = _regions(spec)
    return [name for name, site in regions.items() if len(regions) > 1 and not site.get("primary")]


def _groups(spec: Spec) -> list[tuple[str, str]]:
    """Pool and region of each Auto Scaling group."""
    return [(name, region) for name, pool in spec["pools"].items() for region in pool["regions"]]


def _spare(prefix: str, taken: Mapping[str, object]) -> str:
    return next(name for number in range(1, 100) if (name := f"{prefix}{number}") not in taken)


def _renamed(mapping: MutableMapping[str, Any], old: str, new: str) -> None:
    """The same mapping in the same order, with one key renamed."""
    items = [(new if key == old else key, value) for key, value in mapping.items()]
    mapping.clear()
    mapping.update(items)


def _shuffled(mapping: MutableMapping[str, Any], random: Random) -> bool:
    """Another order of the same keys; False where there is none."""
    if len(mapping) < 2:
        return False
    items = list(mapping.items())
    mapping.clear()
    mapping.update([*items[1:], items[0]] if len(items) == 2 else random.sample(items, len(items)))
    return True


def _replaced(values: Any, old: str, new: str) -> None:
    """``new`` wherever a value in here is ``old``; keys stay."""
    for key, value in values.items() if isinstance(values, dict) else enumerate(values or ()):
        if value == old:
            values[key] = new
        elif isinstance(value, dict | list):
            _replaced(value, old, new)


# -- Sites and zones --------------------------------------------------------------------------------------


def add_site(spec: Spec, random: Random) -> str | None:
    taken = {site.get("region", name) for name, site in _regions(spec).items()}
    free = [region for region in SPARE_REGIONS if region not in taken and region not in spec["sites"]]
    if not free:
        return None
    for site in _regions(spec).values():
        if len(_regions(spec)) == 1:
            site["primary"] = True  # as it was without saying so
    region = random.choice(free)
    spec["sites"][region] = {"kind": "aws", "zones": [f"{region}a", f"{region}b"]}
    pool = random.choice(list(spec["pools"]))
    spec["pools"][pool]["regions"][region] = {"max": 2}
    return f"add site {region}, with pool {pool}"


def remove_site(spec: Spec, random: Random) -> str | None:
    if not (names := _secondary(spec)):
        return None
    name = random.choice(names)
    del spec["sites"][name]
    for pool, body in list(spec["pools"].items()):
        body["regions"].pop(name, None)
        if not body["regions"]:
            del spec["pools"][pool]
    for system in spec.get("storage", {}).get("efs", {}).values():
        if name in (regions := system.get("regions") or []):
            regions.remove(name)
    return f"remove site {name}"


def reorder_sites(spec: Spec, random: Random) -> str | None:
    return "reorder sites" if _shuffled(spec["sites"], random) else None


def rename_site(spec: Spec, random: Random) -> str | None:
    """A site in AWS stays in its region."""
    name = random.choice(list(spec["sites"]))
    new = _spare("site-", spec["sites"])
    if spec["sites"][name]["kind"] == "aws":
        spec["sites"][name].setdefault("region", name)
    for names in (
        spec["sites"],
        spec.get("quotas", {}),
        *(pool["regions"] for pool in spec["pools"].values()),
    ):
        _renamed(names, name, new)
    for part in ("access", "storage", "kubernetes", "dns"):
        _replaced(spec.get(part), name, new)
    return f"rename site {name} to {new}"


def add_zone(spec: Spec, random: Random) -> str | None:
    short = [name for name, site in _regions(spec).items() if len(site.get("zones") or "abc") < 3]
    if not short:
        return None
    site = random.choice(short)
    region = spec["sites"][site].get("region", site)
    free = [zone for letter in "abc" if (zone := f"{region}{letter}") not in spec["sites"][site]["zones"]]
    spec["sites"][site]["zones"].append(free[0])
    return f"add zone {free[0]}"


def remove_zone(spec: Spec, random: Random) -> str | None:
    rich = [name for name, site in _regions(spec).items() if len(site.get("zones") or ()) > 2]
    if not rich:
        return None
    site = random.choice(rich)
    zone = spec["sites"][site]["zones"].pop()
    return f"remove zone {zone}"


def reorder_zones(spec: Spec, _: Random) -> str | None:
    for name, site in _regions(spec).items():
        site.setdefault("zones", [f"{site.get('region', name)}{letter}" for letter in "abc"])
        site["zones"].reverse()
    return "reverse the zones"


def change_gateway(spec: Spec, random: Random) -> str | None:
    """Another provider at a physical site: other public addresses."""
    gateways = [
        site["gateway"] for site in spec["sites"].values() if site["kind"] == "physical" and "gateway" in site
    ]
    if not gateways:
        spec["sites"]["annex"] = {
            "kind": "physical",
            "cidr": "10.201.0.0/24",
            "gateway": {"addresses": ["198.51.100.77"], "asn": 65077},
        }
        return "add a physical site with a gateway"
    address = f"198.51.100.{random.randrange(100, 200)}"
    random.choice(gateways)["addresses"] = [address]
    return f"change a gateway's address to {address}"


# -- Pools ------------------------------------------------------------------------------------------------


def add_pool(spec: Spec, random: Random) -> str | None:
    name = _spare("batch", spec["pools"])
    region = random.choice(list(_regions(spec)))
    spec["pools"][name] = {
        "image": "cpu",
        "instance_types": ["m5.xlarge"],
        "regions": {region: {"max": 2}},
    }
    return f"add pool {name} in {region}"


def remove_pool(spec: Spec, random: Random) -> str | None:
    if len(spec["pools"]) < 2:
        return None
    name = random.choice(list(spec["pools"]))
    del spec["pools"][name]
    return f"remove pool {name}"


def rename_pool(spec: Spec, random: Random) -> str | None:
    name = random.choice(list(spec["pools"]))
    new = _spare("renamed", spec["pools"])
    _renamed(spec["pools"], name, new)
    spec["pools"][new]["renamed_from"] = name
    return f"rename pool {name} to {new}"


def replace_pool(spec: Spec, random: Random) -> str | None:
    """A new name without saying what it was: another pool, and the old one goes."""
    name = random.choice(list(spec["pools"]))
    new = _spare("fresh", spec["pools"])
    _renamed(spec["pools"], name, new)
    spec["pools"][new].pop("renamed_from", None)
    return f"replace pool {name} by {new}"


def reorder_pools(spec: Spec, random: Random) -> str | None:
    return "reorder pools" if _shuffled(spec["pools"], random) else None


def grow_pool(spec: Spec, random: Random) -> str | None:
    pool, region = random.choice(_groups(spec))
    group = spec["pools"][pool]["regions"][region]
    group["max"] = int(group["max"]) + random.randrange(1, 5)
    return f"grow {pool} in {region} to {group['max']}"


def shrink_pool(spec: Spec, random: Random) -> str | None:
    pool, region = random.choice(_groups(spec))
    group = spec["pools"][pool]["regions"][region]
    if int(group["max"]) <= max(1, int(group.get("min", 0))):
        return None
    group["max"] = int(group["max"]) - 1
    return f"shrink {pool} in {region} to {group['max']}"


def change_type(spec: Spec, random: Random) -> str | None:
    pools = [name for name, body in spec["pools"].items() if body["image"] == "cpu"]
    if not pools:
        return None
    name = random.choice(pools)
    spec["pools"][name]["instance_types"] = [random.choice(["m5.2xlarge", "m6i.2xlarge", "c5.2xlarge"])]
    return f"change the type of {name}"


def change_market(spec: Spec, random: Random) -> str | None:
    name = random.choice(list(spec["pools"]))
    market = spec["pools"][name].get("market", "on-demand")
    spec["pools"][name]["market"] = "on-demand" if market == "spot" else "spot"
    return f"change the market of {name} to {spec['pools'][name]['market']}"


# -- People, images, storage ------------------------------------------------------------------------------


def add_user(spec: Spec, _: Random) -> str | None:
    access = spec.setdefault("access", {})
    groups = access.setdefault("groups", {})
    groups.setdefault("researchers", {"gid": 5002, "reach": ["pods"]})
    users = access.setdefault("users", {})
    name = _spare("user", users)
    users[name] = {"groups": ["researchers"], "ssh_keys": [f"{SSH_KEY} {name}@lab.example"]}
    return f"add user {name}"


def remove_user(spec: Spec, random: Random) -> str | None:
    users = spec.get("access", {}).get("users", {})
    if not users:
        return None
    name = random.choice(list(users))
    del users[name]
    return f"remove user {name}"


def rename_user(spec: Spec, random: Random) -> str | None:
    """To AWS and to the cluster that is somebody else, with another number."""
    users = spec.get("access", {}).get("users", {})
    if not users:
        return None
    name = random.choice(list(users))
    new = _spare("person", users)
    _renamed(users, name, new)
    users[new].pop("uid", None)
    return f"rename user {name} to {new}"


def add_image(spec: Spec, random: Random) -> str | None:
    """A new image, and a pool that moves to it."""
    name = _spare("image", spec["images"])
    spec["images"][name] = {"ubuntu": "22.04"}
    pools = [pool for pool, body in spec["pools"].items() if body["image"] == "cpu"]
    if pools:
        spec["pools"][random.choice(pools)]["image"] = name
    return f"add image {name}"


def remove_image(spec: Spec, random: Random) -> str | None:
    """Pools that used it go back to the plain one."""
    names = [name for name in spec["images"] if name.startswith("image")]
    if not names:
        return None
    name = random.choice(names)
    del spec["images"][name]
    for pool in spec["pools"].values():
        if pool["image"] == name:
            pool["image"] = "cpu"
    return f"remove image {name}"


def rename_image(spec: Spec, random: Random) -> str | None:
    """Any but the plain one, which other edits give to pools."""
    names = [name for name in spec["images"] if name != "cpu"]
    if not names:
        return None
    name = random.choice(names)
    new = _spare("image", spec["images"])
    _renamed(spec["images"], name, new)
    machines = (*spec["pools"].values(), *spec.get("access", {}).get("ssh_nodes", {}).values())
    for machine in machines:
        if machine.get("image") == name:
            machine["image"] = new
    return f"rename image {name} to {new}"


def add_storage(spec: Spec, random: Random) -> str | None:
    storage = spec.setdefault("storage", {})
    kind = random.choice(["efs", "s3"])
    systems = storage.setdefault(kind, {})
    name = _spare(kind, systems)
    systems[name] = {"path": f"/{name}"}
    return f"add {kind} {name}"


def rename_storage(spec: Spec, random: Random) -> str | None:
    """Another file system or bucket; the old one goes, with what is in it."""
    storage = spec.get("storage", {})
    names = [(kind, name) for kind in ("efs", "s3") for name in storage.get(kind, {})]
    if not names:
        return None
    kind, name = random.choice(names)
    new = _spare(kind, storage[kind])
    _renamed(storage[kind], name, new)
    if kind == "s3":
        _replaced(storage.get("copies"), name, new)
    return f"rename {kind} {name} to {new}"


def remove_storage(spec: Spec, random: Random) -> str | None:
    storage = spec.get("storage", {})
    names = [
        (kind, name) for kind in ("efs", "s3") for name in storage.get(kind, {}) if name.startswith(kind)
    ]
    if not names:
        return None
    kind, name = random.choice(names)
    del storage[kind][name]
    return f"remove {kind} {name}"


EDITS: Final[Mapping[str, Edit]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            add_site,
            remove_site,
            reorder_sites,
            rename_site,
            add_zone,
            remove_zone,
            reorder_zones,
            change_gateway,
            add_pool,
            remove_pool,
            rename_pool,
            replace_pool,
            reorder_pools,
            grow_pool,
            shrink_pool,
            change_type,
            change_market,
            add_user,
            remove_user,
            rename_user,
            add_image,
            remove_image,
            rename_image,
            add_storage,
            remove_storage,
            rename_storage,
        )
    }
)
"""By name."""
