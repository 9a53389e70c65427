"""A spec against what was applied: every policy holds, and what is said helps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from golden_folders import assert_text
from pydantic import BaseModel

from infra.applied import (
    Change,
    Comparison,
    changes,
    lines,
    refused,
    snapshot,
)
from infra.errors import Path as SpecPath
from infra.errors import Position, Problem, dotted
from infra.load import Loaded, load
from infra.model import Cluster
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock
from infra.schema import Spec
from infra.schema.base import Update, policy_of
from infra.schema.formatting import hints, item_of, models
from infra.schema.reference import parts

MESSAGES = Path(__file__).parent / "messages/applied.txt"

SPEC = """\
version: 1
name: lab
domain: lab.internal
sites:
  us-west-2: {kind: aws, zones: [us-west-2a, us-west-2b]}
images:
  cpu: {}
"""

WIDE = """\
version: 1
name: lab
domain: lab.internal
supernet: 10.0.0.0/8
state: {kind: s3, bucket: lab-state}
sites:
  rack:
    kind: physical
    cidr: 10.200.0.0/22
    gateway: {addresses: [198.51.100.10]}
    nodes:
      nas: {address: 10.200.0.2, cpus: 8, memory: 16 GiB, roles: [site-gateway, nfs-server]}
  us-west-2:
    kind: aws
    primary: true
    cidr: 10.1.0.0/16
    zones: [us-west-2a, us-west-2b]
  us-east-1: {kind: aws, zones: [us-east-1a]}
images:
  cpu: {}
pools:
  cpu:
    image: cpu
    instance_types: [m6i.large, m5.large]
    regions: {us-west-2: {min: 1, max: 4}}
    labels: {team: vision}
kubernetes:
  pods: {cidr: 10.128.0.0/14}
storage:
  efs: {home: {path: /home, access_points: {all: {path: /}}}}
  s3: {data: {path: /data}}
  nfs: {scratch: {site: rack, export: /srv, path: /scratch}}
access:
  groups: {staff: {}}
  users:
    ada:
      groups: [staff]
      ssh_keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP3uQw1AvVfe6sGGzZeQAz0PBvkJqIBufObnF6t8fVAp ada"]
"""


class Live:
    """A spec that was applied, and may be edited."""

    def __init__(self, file: Path, text: str) -> None:
        self.file = file
        self.text = text
        self.lock = Lock()
        self.edit("", "")
        loaded, cluster = self.now()
        self.before: Mapping[str, Any] = json.loads(json.dumps(snapshot(loaded.spec, cluster)))

    def now(self) -> tuple[Loaded, Cluster]:
        loaded = load(self.file)
        cluster, self.lock = resolve(loaded.spec, self.lock, self.file.stem)
        return loaded, cluster

    def edit(self, old: str, new: str) -> None:
        assert old in self.text
        self.text = self.text.replace(old, new, 1)
        self.file.write_text(self.text)

    def changes(self) -> tuple[Change, ...]:
        loaded, cluster = self.now()
        return changes(self.before, loaded.spec, cluster)

    def refused(self, *, resolved: bool = True) -> tuple[Problem, ...]:
        loaded = load(self.file)
        cluster = self.now()[1] if resolved else None
        return refused(changes(self.before, loaded.spec, cluster), loaded.position)


@pytest.fixture
def small(tmp_path: Path) -> Live:
    return Live(tmp_path / "x.yaml", SPEC)


@pytest.fixture
def wide(tmp_path: Path) -> Live:
    return Live(tmp_path / "x.yaml", WIDE)


def found(live: Live) -> dict[str, tuple[str, Update]]:
    return {dotted(change.path): (change.what, change.policy) for change in live.changes()}


@pytest.mark.parametrize("name", ["minimal", "local", "machines", "research"])
def test_a_spec_is_no_change_of_itself(name: str) -> None:
    spec = load(Path(f"environments/{name}.yaml")).spec
    cluster, lock = resolve(spec, Lock(), name)
    before = json.loads(json.dumps(snapshot(spec, cluster)))
    assert changes(before, spec, cluster) == ()
    assert changes(before, spec, resolve(spec, lock, name)[0]) == ()
    assert refused(changes(before, spec)) == ()


EAST = "us-east-1: {kind: aws, zones: [us-east-1a]}"
REFUSED: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "a live block": (WIDE, {"cidr: 10.1.0.0/16": "cidr: 10.9.0.0/16"}, ["sites.us-west-2.cidr"]),
    "another primary region": (
        WIDE,
        {"    primary: true\n": "", EAST: "us-east-1: {kind: aws, primary: true, zones: [us-east-1a]}"},
        ["sites.us-west-2.primary", "sites.us-east-1.primary", "storage.s3.data.region"],
    ),
    "another name of the primary region": (
        SPEC,
        {"us-west-2: {kind: aws,": "oregon: {kind: aws, region: us-west-2,"},
        ["sites.oregon.primary"],
    ),
    "a region that becomes a rack": (
        WIDE,
        {EAST: "us-east-1: {kind: physical, cidr: 10.77.0.0/24}"},
        ["sites.us-east-1.kind"],
    ),
    "another prefix": (WIDE, {EAST: EAST.replace("aws,", "aws, prefix: 18,")}, ["sites.us-east-1.prefix"]),
    "an account in names of buckets": (
        WIDE,
        {"images:": 'aws: {account: "123456789012"}\nimages:'},
        ["storage.s3.data.name"],
    ),
}
RESOLVED = ("another primary region", "an account in names of buckets")


def test_what_can_not_change_is_refused_where_it_stands(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    told = []
    for case, (text, edits, paths) in REFUSED.items():
        live = Live(tmp_path / "x.yaml", text)
        for old, new in edits.items():
            live.edit(old, new)
        problems = live.refused(resolved=case in RESOLVED)
        assert [each.path for each in problems] == paths, case
        told += [f"# {case}", *map(str, problems)]
    live = Live(tmp_path / "x.yaml", SPEC)
    live.lock = Lock(blocks={"sites/us-west-2": IPv4Network("10.77.0.0/16")})
    told += ["# a lost lock file", *map(str, live.refused())]
    live = Live(tmp_path / "x.yaml", WIDE)
    for old, new in ROLLS.items():
        live.edit(old, new)
    told += ["# nodes are replaced, a gateway is, and the rest", *lines(live.changes())]
    text = "\n".join(told).replace(f"{tmp_path}/", "") + "\n"
    assert_text(MESSAGES, text, rewrite=request.config.getoption("--update-golden"))


ROLLS = {
    "[m6i.large, m5.large]": "[m6i.large, {type: m5.xlarge, weight: 2}, m5.large]",
    "team: vision": "team: speech, floor: 2",
    "198.51.100.10": "198.51.100.11",
    "max: 4": "max: 8",
    "memory: 16 GiB": "memory: 1536 MiB",
    "storage:": "autoscaler: {idle: 90m}\nstorage:",
}


def test_each_change_has_its_policy(wide: Live) -> None:
    for old, new in ROLLS.items():
        wide.edit(old, new)
    assert found(wide) == {
        "sites.rack.gateway.addresses": ("[198.51.100.10] -> [198.51.100.11]", Update.REPLACES),
        "sites.rack.nodes.nas.memory": ("16 GiB -> 1536 MiB", Update.ROLLING),
        "pools.cpu.instance_types[1].type": ("m5.large -> m5.xlarge", Update.ROLLING),
        "pools.cpu.instance_types[1].weight": ("1 -> 2", Update.ROLLING),
        "pools.cpu.instance_types[2]": ("added", Update.ROLLING),
        "pools.cpu.labels.team": ("vision -> speech", Update.ROLLING),
        "pools.cpu.labels.floor": ("added", Update.ROLLING),
        "pools.cpu.regions.us-west-2.max": ("4 -> 8", Update.IN_PLACE),
        "autoscaler.idle": ("10m -> 90m", Update.IN_PLACE),
    }


def test_to_write_down_what_was_decided_is_no_change(small: Live) -> None:
    site = small.before["sites"]["us-west-2"]
    small.edit(
        "{kind: aws, zones: [us-west-2a, us-west-2b]}",
        f"{{kind: aws, region: us-west-2, primary: true, cidr: {site['cidr']}, asn: {site['asn']}}}",
    )
    small.edit("us-west-2, primary", "us-west-2, zones: [us-west-2a, us-west-2b], primary")
    assert small.changes() == ()
    assert small.refused(resolved=False) == ()


def test_a_second_region_has_the_first_say_that_it_is_primary(small: Live) -> None:
    small.edit("{kind: aws,", "{kind: aws, primary: true,")
    small.edit("images:", "  eu-west-1: {kind: aws, zones: [eu-west-1a]}\nimages:")
    assert found(small) == {"sites.eu-west-1": ("added", Update.IN_PLACE)}


def test_sites_and_pools_come_and_go(wide: Live) -> None:
    wide.edit("  us-east-1: {kind: aws, zones: [us-east-1a]}\n", "")
    wide.edit("pools:", "  gpu: {}\npools:")
    assert found(wide) == {
        "sites.us-east-1": ("removed", Update.IN_PLACE),
        "images.gpu": ("added", Update.IN_PLACE),
    }
    assert wide.refused() == ()


def test_a_zone_more_is_an_addition(wide: Live) -> None:
    wide.edit("[us-west-2a, us-west-2b]", "[us-west-2a, us-west-2b, us-west-2c]")
    assert wide.refused() == ()
    assert found(wide)["sites.us-west-2.zones"] == (
        "[us-west-2a, us-west-2b] -> [us-west-2a, us-west-2b, us-west-2c]",
        Update.IN_PLACE,
    )


def test_a_public_address_more_replaces_nothing(wide: Live) -> None:
    wide.edit("[198.51.100.10]", "[198.51.100.10, 198.51.100.11]")
    assert found(wide) == {
        "sites.rack.gateway.addresses": (
            "[198.51.100.10] -> [198.51.100.10, 198.51.100.11]",
            Update.IN_PLACE,
        )
    }
    wide.edit("[198.51.100.10, 198.51.100.11]", "[198.51.100.11, 198.51.100.10]")
    assert found(wide)["sites.rack.gateway.addresses"][1] is Update.REPLACES


def test_an_account_is_named_later(small: Live) -> None:
    small.edit("images:", 'aws: {account: "123456789012"}\nimages:')
    assert found(small) == {"aws.account": ("added", Update.NEVER)}
    assert small.refused() == ()


def test_a_prefix_means_nothing_beside_a_block(wide: Live) -> None:
    wide.edit("cidr: 10.1.0.0/16", "cidr: 10.1.0.0/16\n    prefix: 20")
    assert wide.changes() == ()


def test_a_snapshot_of_an_older_language(wide: Live) -> None:
    before = json.loads(json.dumps(wide.before))
    del before["pools"]["cpu"]["warm_pool"], before["pools"]["cpu"]["priority"], before["autoscaler"]
    del before["network"]["links"], before["sites"]["rack"]["cidr"]
    before["pools"]["cpu"]["gone_since"] = 1
    wide.before = before
    assert found(wide) == {"sites.rack.cidr": ("added", Update.REPLACES)}
    wide.edit("  cpu:\n    image: cpu", "  cpu:\n    priority: 3\n    image: cpu")
    assert found(wide)["pools.cpu.priority"] == ("0 -> 3", Update.IN_PLACE)


def test_a_new_default_is_a_change(wide: Live) -> None:
    before = json.loads(json.dumps(wide.before))
    before["kubernetes"]["version"] = "1.30"
    wide.before = before
    assert found(wide) == {"kubernetes.version": ("1.30 -> 1.36", Update.ROLLING)}


# -- Every field, by reflection ---------------------------------------------------------------------------


def places() -> Iterator[tuple[SpecPath, type[BaseModel], str]]:
    """Every field of the language, each at one place where a spec may hold it."""
    seen: set[type[BaseModel]] = set()

    def walk(part: type[BaseModel], path: SpecPath) -> Iterator[tuple[SpecPath, type[BaseModel], str]]:
        if part in seen:
            return
        seen.add(part)
        for field in part.model_fields:
            annotation = hints(part)[field]
            yield (*path, field), part, field
            for container, key in ((dict, "one"), (tuple, 0)):
                item = item_of(annotation, container)
                for child in models(item) if item is not None else ():
                    inner = f"one-{child.__name__}".lower() if container is dict else key
                    yield from walk(child, (*path, field, inner))
            for child in models(annotation):
                yield from walk(child, (*path, field))

    yield from walk(Spec, ())


EVERYWHERE = list(places())
SCALAR = [
    (path, part, field)
    for path, part, field in EVERYWHERE
    if not models(hints(part)[field])
    and not models(item_of(hints(part)[field], tuple))
    and item_of(hints(part)[field], dict) is None
    and path[0] not in {"extends", "version", "waivers"}
]


def test_reflection_finds_every_part() -> None:
    assert {part for _, part, _ in EVERYWHERE} == set(parts())
    assert len(EVERYWHERE) == sum(len(part.model_fields) for part in parts())


def nested(path: SpecPath, value: Any) -> Any:
    """A tree with just one value in it, and what tells a region from a rack."""
    for step in reversed(path):
        value = [value] if isinstance(step, int) else {step: value}
    if path[0] == "sites":
        site = value["sites"][path[1]]
        site.setdefault("kind", "physical" if path[1] == "one-physicalsite" else "aws")
    return value


@pytest.mark.parametrize(
    ("path", "part", "field"), SCALAR, ids=[f"{part.__name__}.{field}" for _, part, field in SCALAR]
)
def test_every_change_has_the_policy_of_its_field(path: SpecPath, part: type[BaseModel], field: str) -> None:
    old, new = "x", "y"
    if field == "kind" and path[0] == "sites":
        old, new = ("physical", "aws") if part.__name__ == "PhysicalSite" else ("aws", "physical")
    if item_of(hints(part)[field], tuple) is not None:
        old, new = [old], [new]  # type: ignore[assignment]
    policy = policy_of(part, field)
    walk = Comparison({}).parts(Spec, nested(path, old), nested(path, new), (), None)
    (change,) = [one for one in walk if one.path == path]
    assert change.policy is policy.update
    problems = refused([change], lambda _: Position("x.yaml", 12))
    assert len(problems) == (policy.update is Update.NEVER)
    for problem in problems:
        assert str(problem).startswith("x.yaml:12: ")
        assert f"{old} -> {new}" in problem.message
        assert policy.because, "a refusal has a reason"
        assert policy.because in problem.message
        assert problem.code == "UPD001"
        assert problem.fatal
