"""Whole sound specs, as plain mappings: what a person could write, of any shape the language has.

Stated blocks, numbers and addresses come from places that allocation does not reach by itself, so that a spec
may be edited (`strategies.edits`) without one's own statement meeting what was given to another before.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from infra.catalogue import instances
from infra.catalogue import regions as catalogue
from infra.checks.access import TAKEN

Plain: TypeAlias = dict[str, Any]
"""A mapping of a spec, or the whole: mappings, lists, text, whole numbers, booleans."""

KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP3uQw1AvVfe6sGGzZeQAz0PBvkJqIBufObnF6t8fVAp lab"
REGIONS: Final = (
    "us-west-2", "us-east-1", "eu-west-1", "eu-central-1", "ap-southeast-2", "ca-central-1", "sa-east-1",
)  # fmt: skip
SUPERNETS: Final = ("10.0.0.0/8", "10.0.0.0/10", "10.64.0.0/10")
_STATED: Final = tuple(IPv4Network(f"172.{second}.0.0/16") for second in range(20, 32))
"""Outside of every supernet above; each site states its block in one of its own."""

_IMAGES: Final[Plain] = {
    "cpu": {"ubuntu": "24.04"},
    "arm": {"ubuntu": "22.04", "architecture": "arm64"},
    "gpu": {"ubuntu": "22.04", "root_disk": "100 GiB", "gpu": {"driver": 580, "cuda": "12.8"}},
}
_TYPES: Final = {
    "cpu": ("m6i.xlarge", "m5.xlarge", "c6i.2xlarge", "r6i.xlarge"),
    "arm": ("m7g.xlarge", "m6g.2xlarge"),
    "gpu": ("g5.xlarge", "g5.2xlarge", "g5.4xlarge"),
}

words = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=6)
names = st.builds(lambda first, rest: "".join(first + rest), st.sampled_from("abcxyz"), words).filter(
    lambda name: name not in TAKEN
)
"""What the language takes as a name, also of a person or a group."""


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value, or None: the field is left out."""
    return st.none() | values


def written(**fields: Any) -> Plain:
    """A mapping without the fields that are None: those are not written."""
    return {key: value for key, value in fields.items() if value is not None}


def some(draw: st.DrawFn, values: tuple[str, ...], *, least: int = 0, most: int | None = None) -> list[str]:
    """Different ones of a few values, in any order."""
    found: list[str] = draw(st.lists(st.sampled_from(values), unique=True, min_size=least, max_size=most))
    return found


@st.composite
def specs(draw: st.DrawFn, *, regions: int = 4, sites: int = 3, pools: int = 4) -> Plain:
    """A sound spec with at least one AWS region and at most so many of each."""
    aws = some(draw, REGIONS, least=1, most=regions)
    places: Plain = {}
    for number in range(draw(st.integers(0, sites))):
        places[f"rack-{number}"] = draw(physical_sites(number))
    gateways = tuple(name for name, site in places.items() if "gateway" in site)
    for number, region in enumerate(aws):
        places[region] = draw(aws_sites(region, number, primary=number == 0, gateways=gateways))
    if len(aws) > 1 and places[aws[0]].get("nat") == "none":
        # Its masters would reach the other regions by no endpoint.
        places[aws[0]]["nat"] = "one"
    order = draw(st.permutations(list(places)))
    mirrors = {"docker.io": ["https://mirror.lab.example"]}
    # Machines that nothing leads out from have their images from inside.
    closed = any(place.get("nat") == "none" for place in places.values())
    enclosed = {**mirrors, "_default": ["https://mirror.lab.example"]} if closed else None
    return written(
        version=1,
        name="lab",
        domain="lab.internal",
        supernet=draw(maybe(st.sampled_from(SUPERNETS))),
        owner=draw(maybe(st.just("platform@lab.example"))),
        tags=draw(maybe(st.dictionaries(names.map(lambda name: f"lab:{name}"), words, max_size=3))),
        network=written(
            interconnect=draw(maybe(st.sampled_from(["peering", "transit-gateway"]))),
            alarms=draw(maybe(st.just({"emails": ["on-call@lab.example"]}))),
            routing=draw(maybe(st.sampled_from(["bgp", "static"]))),
        ),
        sites={name: places[name] for name in order},
        images=_IMAGES,
        pools=draw(node_pools(tuple(aws), most=pools)),
        kubernetes=draw(platforms()),
        storage=draw(storages(tuple(aws), tuple(name for name in places if name not in aws))),
        access=draw(doors(tuple(aws))),
        machines=written(
            time_servers=draw(maybe(st.just(["10.0.0.2", "ntp.lab.example"]))),
            packages=draw(maybe(st.just(["htop", "nvtop=3.1.0-1"]))),
            registry_mirrors=draw(st.just(enclosed) if enclosed else maybe(st.just(mirrors))),
            unattended_upgrades=draw(maybe(st.booleans())),
        ),
        software=draw(maybe(st.just({"torch": "2.9.1", "containerd": {"version": "2.3"}}))),
    )


@st.composite
def physical_sites(draw: st.DrawFn, number: int) -> Plain:
    """A site with a few nodes; one in three is an island without a gateway."""
    lan = IPv4Network(f"192.168.{16 + 4 * number}.0/22")
    nodes = {
        "storage-" + str(number): {
            "address": str(lan[3]), "cpus": 16, "memory": "64 GiB", "roles": ["nfs-server", "worker"],
        }
    }  # fmt: skip
    gateway = None
    if draw(st.integers(0, 2)):
        nodes[f"gateway-{number}"] = {
            "address": str(lan[2]), "cpus": 4, "memory": "8 GiB", "roles": ["site-gateway"],
        }  # fmt: skip
        gateway = written(
            addresses=[f"198.51.100.{10 * number + last}" for last in range(1, draw(st.integers(1, 2)) + 1)],
            asn=draw(maybe(st.just(65400 + number))),
            behind_nat=draw(maybe(st.booleans())),
            routing=draw(maybe(st.sampled_from(["bgp", "static"]))),
        )
    for index in range(draw(st.integers(0, 3))):
        nodes[f"titan-{number}-{index}"] = written(
            address=str(lan[10 + index]),
            mac=f"0c:c4:7a:00:{number:02x}:{index:02x}",
            rack=draw(maybe(st.sampled_from(["row-1", "row-2"]))),
            cpus=32,
            memory="128 GiB",
            gpus=draw(maybe(st.just({"model": "titan-x-pascal", "count": 4}))),
            **draw(st.sampled_from(SYSTEMS)),
        )
    return written(
        kind="physical",
        location=draw(maybe(st.just("Basement"))),
        cidr=str(lan),
        mtu=draw(maybe(st.sampled_from([1280, 1500, 9000]))),
        gateway=gateway,
        nodes=nodes,
        autoinstall=draw(maybe(st.booleans())),
        ubuntu=draw(maybe(st.sampled_from(["22.04", "24.04"]))),
        router=draw(maybe(st.just(str(lan[1])))),
    )


DISK: Final = {"device": "/dev/sda", "size": "1 TiB", "use": "system"}

SYSTEMS: Final[tuple[Plain, ...]] = (
    {},
    {"disks": [DISK]},
    {"disks": [DISK], "system": {"lvm": True, "root": "100 GiB"}},
    {"disks": [DISK, {**DISK, "device": "/dev/disk/by-id/nvme-X_1"}], "system": {"raid": 1, "lvm": True}},
)
"""Disks of a node and what is on them; RAID 1 has two."""


@st.composite
def aws_sites(
    draw: st.DrawFn, region: str, number: int, *, primary: bool, gateways: tuple[str, ...]
) -> Plain:
    """A region; its block, and those of some subnets, allocated or stated."""
    known = catalogue.find(region)
    assert known is not None
    zones = some(draw, known.zones, least=1, most=4) if draw(st.booleans()) else None
    prefix = draw(st.integers(16, 20))
    sizes = {
        "public": draw(st.integers(prefix + 5, 27)),
        "private": draw(st.integers(prefix + 3, prefix + 5)),
        "pods": draw(maybe(st.integers(prefix + 4, prefix + 6))),
    }
    block = draw(maybe(st.just(next(_STATED[number].subnets(new_prefix=prefix)))))
    stated: Plain = {}
    if block is not None:
        # From the end, a slot for each zone and tier.
        slots = list(block.subnets(new_prefix=prefix + 5))[::-1]
        for index, zone in enumerate(some(draw, tuple(zones or known.zones[:3]), most=2)):
            stated[zone] = {"private": str(slots[2 * index]), "public": str(slots[2 * index + 1])}
    nat = draw(maybe(st.sampled_from(["none", "one", "one-per-zone"])))
    return written(
        kind="aws",
        primary=True if primary else None,
        overflow=None if primary else draw(maybe(st.integers(0, 9))),
        zones=zones,
        cidr=str(block) if block is not None else None,
        prefix=prefix,
        subnets=written(**sizes),
        explicit_subnets=stated or None,
        nat=nat,
        endpoints=["s3", "ssm", "ec2", "autoscaling", "elasticfilesystem", "sts"] if nat == "none" else None,
        flow_logs=draw(maybe(st.sampled_from([{"enabled": True}, {"enabled": False}]))),
        asn=draw(maybe(st.just(65300 + number))),
        vpn=draw(st.lists(st.sampled_from(gateways), unique=True)) if gateways and number % 2 else None,
    )


@st.composite
def node_pools(draw: st.DrawFn, aws: tuple[str, ...], *, most: int) -> Plain:
    """Pools of every kind in regions that offer their first type."""
    found: Plain = {}
    for name in draw(st.lists(names, unique=True, max_size=most)):
        image = draw(st.sampled_from(sorted(_IMAGES)))
        types = some(draw, _TYPES[image], least=1, most=2)
        fit = tuple(region for region in aws if all(catalogue.offered(each, region) for each in types))
        if not fit:
            continue
        market = draw(st.sampled_from(["on-demand", "spot", {"kind": "mixed", "base": 1}]))
        old = all(each.split(".")[0] in instances.BEFORE_2023 for each in types)
        plain = len(types) == 1 and market == "on-demand" and old
        found[name] = written(
            image=image,
            instance_types=types,
            market=market,
            root_disk=draw(maybe(st.just({"size": "120 GiB", "type": "gp3"}))),
            scratch_disks=draw(maybe(st.just([{"size": "200 GiB"}]))),
            labels=draw(
                maybe(st.dictionaries(names.map(lambda key: f"lab.example/{key}"), words, max_size=2))
            ),
            taints=draw(maybe(st.just([{"key": "nvidia.com/gpu", "value": "present"}]))),
            priority=draw(maybe(st.integers(-10, 10))),
            launch="configuration" if plain and draw(st.booleans()) else None,
            regions={region: draw(bounds()) for region in some(draw, fit, least=1)},
        )
    return found


@st.composite
def bounds(draw: st.DrawFn) -> Plain:
    """A pool's bounds in a region."""
    least = draw(st.integers(0, 2))
    return {"min": least, "max": least + draw(st.integers(1, 3))}


@st.composite
def platforms(draw: st.DrawFn) -> Plain:
    """Kubernetes."""
    return written(
        control_plane=draw(maybe(st.sampled_from([{"count": 1}, {"count": 3}]))),
        pods=written(
            backend=draw(maybe(st.sampled_from(["vxlan", "wireguard"]))),
            prefix=draw(st.integers(13, 16)),
            cidr=draw(maybe(st.just("172.18.0.0/15"))),
        ),
        services=draw(maybe(st.just("192.168.128.0/20"))),
    )


@st.composite
def storages(draw: st.DrawFn, aws: tuple[str, ...], physical: tuple[str, ...]) -> Plain:
    """File systems and buckets."""
    return written(
        efs={
            name: written(path=f"/efs/{name}", regions=draw(maybe(st.just(some(draw, aws, least=1)))))
            for name in draw(st.lists(names, unique=True, max_size=2))
        },
        s3={
            name: written(
                region=draw(maybe(st.sampled_from(aws))), expire_days=draw(maybe(st.integers(1, 90)))
            )
            for name in draw(st.lists(names, unique=True, max_size=2))
        },
        nfs={"home": {"site": draw(st.sampled_from(physical)), "export": "/srv/home", "path": "/home"}}
        if physical
        else None,
    )


@st.composite
def doors(draw: st.DrawFn, aws: tuple[str, ...]) -> Plain:
    """SSH nodes, groups and users."""
    groups = some(draw, ("crew", "guests", "ops"), least=1)
    kinds = draw(maybe(st.sampled_from([["openvpn", "wireguard"], ["wireguard"], ["openvpn"]])))
    return written(
        vpn=written(kinds=kinds) if kinds else None,
        groups={name: written(gid=draw(maybe(st.just(6000 + index)))) for index, name in enumerate(groups)},
        users={
            name: written(
                name=f"User {name}",
                email=f"{name}@lab.example",
                uid=draw(maybe(st.just(20000 + index))),
                groups=some(draw, tuple(groups), least=1),
                ssh_keys=[KEY],
            )
            for index, name in enumerate(draw(st.lists(names, unique=True, max_size=3)))
        },
        ssh_nodes={
            name: written(instance_type="t3.medium", image="cpu", site=draw(maybe(st.sampled_from(aws))))
            for name in some(draw, ("login", "build"))
        },
    )
