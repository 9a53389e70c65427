"""What resolve promises for every spec that a person could write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Network
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies.edits import edited
from strategies.reading import read, unchecked
from strategies.specs import Plain, specs

from infra.errors import SpecError
from infra.load import load
from infra.model import Cluster, to_json
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock, dump, parse

WHOLE = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""A whole spec takes a while to think up."""


def resolved(spec: Plain, lock: Lock | None = None) -> tuple[Cluster, Lock]:
    return resolve(read(spec).spec, lock or Lock(), "lab")


def tops(cluster: Cluster) -> Iterator[tuple[str, IPv4Network]]:
    """What may overlap with nothing else of the cluster."""
    for region in cluster.regions:
        yield region.name, region.vpc
    for site in cluster.sites:
        yield site.name, site.lan
    network = cluster.network
    yield from (("pods", network.pods), ("services", network.services), ("clients", network.clients))
    if cluster.access.vpn.wireguard:
        yield "devices", cluster.access.vpn.wireguard.clients
    for link in cluster.network.links:
        for tunnel in link.tunnels:
            yield tunnel.secret, tunnel.inside


def numbers(cluster: Cluster) -> dict[str, int]:
    return {
        **{f"asn of {region.name}": region.asn for region in cluster.regions},
        **{f"asn of {site.name}": site.gateway.asn for site in cluster.sites if site.gateway},
        **{f"gid of {group.name}": group.gid for group in cluster.access.groups},
        **{f"uid of {user.login}": user.uid for user in cluster.access.users},
    }


ENVIRONMENTS = Path(__file__).parents[2] / "environments"
SHIPPED = sorted(file.name.removesuffix(".lock.yaml") for file in ENVIRONMENTS.glob("*.lock.yaml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_lock_file_is_complete(name: str) -> None:
    """So that the first plan in a fresh clone changes nothing that git knows."""
    file = ENVIRONMENTS / f"{name}.lock.yaml"
    text = file.read_text(encoding="utf-8")
    _, lock = resolve(load(ENVIRONMENTS / f"{name}.yaml").spec, parse(text, file.name), name)
    assert dump(lock) == text


def test_each_shipped_environment_has_a_lock_file() -> None:
    """``base.yaml`` is there for others to extend."""
    specs = (file for file in ENVIRONMENTS.glob("*.yaml") if not file.name.endswith(".lock.yaml"))
    assert sorted(file.stem for file in specs if file.stem != "base") == SHIPPED


@WHOLE
@given(specs())
def test_nothing_is_wrong_with_a_sound_spec(spec: Plain) -> None:
    assert [str(problem) for problem in read(spec).problems if problem.fatal] == []


@WHOLE
@given(specs())
def test_no_overlap_and_everything_contained(spec: Plain) -> None:
    cluster, _ = resolved(spec)
    for (a, one), (b, other) in combinations(tops(cluster), 2):
        assert not one.overlaps(other), (a, b)
    stated = {name for name, site in spec["sites"].items() if "cidr" in site}
    for region in cluster.regions:
        assert region.name in stated or region.vpc.subnet_of(cluster.network.supernet)
        for subnet in region.subnets:
            assert subnet.block.subnet_of(region.vpc), subnet
        for left, right in combinations(region.subnets, 2):
            assert not left.block.overlaps(right.block), (left, right)
    for link in cluster.network.links:
        for tunnel in link.tunnels:
            assert tunnel.inside.subnet_of(IPv4Network("169.254.0.0/16"))
    for block in (
        cluster.network.pods,
        cluster.network.services,
        *(region.vpc for region in cluster.regions),
    ):
        assert any(block.subnet_of(private) for private in cluster.network.private)


@WHOLE
@given(specs())
def test_each_users_devices_have_addresses_of_their_own(spec: Plain) -> None:
    vpn = resolved(spec)[0].access.vpn
    if vpn.wireguard is None:
        assert all(user.devices is None for user in vpn.users)
        return
    own = {each.address for server in vpn.servers for each in server.listeners if each.name == "wireguard"}
    assert len(own) == bool(vpn.servers)
    blocks = [user.devices for user in vpn.users if user.devices]
    assert len(blocks) == len(vpn.users)
    assert all(block.subnet_of(vpn.wireguard.clients) for block in blocks)
    assert not any(one.overlaps(other) for one, other in combinations(blocks, 2))
    assert not any(address in block for address in own for block in blocks)


@WHOLE
@given(specs())
def test_each_number_has_one_owner(spec: Plain) -> None:
    cluster, _ = resolved(spec)
    found = [(name.split(" ", 1)[0], number) for name, number in numbers(cluster).items()]
    assert len(set(found)) == len(found)


@WHOLE
@given(specs())
def test_the_same_spec_and_lock_give_the_same_bytes(spec: Plain) -> None:
    first, lock = resolved(spec)
    again, kept = resolved(spec, parse(dump(lock), "lab.lock.yaml"))
    assert dump(kept) == dump(lock)
    assert to_json(again) == to_json(first)


@WHOLE
@given(specs(), st.data())
def test_no_edit_moves_a_block_or_a_number(whole: Plain, data: st.DataObject) -> None:
    """Sites, regions, zones, pools and people come, go and change places; what one has, one keeps."""
    blocks: dict[str, IPv4Network] = {}
    ever: dict[str, int] = {}
    lock = Lock()
    for spec in [*(data.draw(edited(whole)) for _ in range(data.draw(st.integers(1, 3)))), whole]:
        cluster, lock = resolved(spec, lock)
        for block in cluster.network.blocks:
            assert blocks.setdefault(block.owner, block.block) == block.block, block.owner
        for name, number in numbers(cluster).items():
            assert ever.setdefault(name, number) == number, name
        lock = parse(dump(lock), "lab.lock.yaml")


@WHOLE
@given(specs(), st.randoms(use_true_random=False))
def test_the_order_in_the_file_does_not_matter(spec: Plain, random: object) -> None:
    backwards = {key: spec[key] for key in reversed(spec)}
    for part in ("sites", "pools"):
        backwards[part] = dict(reversed(spec[part].items()))
    assert to_json(resolved(backwards)[0]) == to_json(resolved(spec)[0])


DOES_NOT_FIT = re.compile(
    r"\S+ needs an? /\d+ \((?P<needed>[\d,]+) address(es)?\) in supernet \(\S+\), "
    r"(where nothing is free|"
    r"(where the largest free block|which) is (only )?an? /\d+ \((?P<free>[\d,]+) .*\))"
    r": (?P<missing>[\d,]+) address(es)? too few"
)


def cramped(spec: Plain, prefix: int) -> Plain:
    """The spec with nothing stated, and a supernet that is too small for its pods alone."""
    stated = ("cidr", "explicit_subnets")
    return {
        **spec,
        "supernet": f"10.128.0.0/{prefix}",
        "kubernetes": {"pods": {"prefix": 15}},
        "sites": {
            name: {key: site[key] for key in site if key not in stated} if site["kind"] == "aws" else site
            for name, site in spec["sites"].items()
        },
    }


@WHOLE
@given(specs(), st.integers(16, 24))
def test_an_impossible_spec_names_what_does_not_fit_and_by_how_much(spec: Plain, prefix: int) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(unchecked(cramped(spec, prefix)), Lock(), "lab")
    told = [problem for problem in caught.value.problems if problem.code == "NET031"]
    assert "kubernetes/pods" in [problem.message.split()[0] for problem in told]
    for problem in told:
        assert problem.path
        match = DOES_NOT_FIT.match(problem.message)
        assert match is not None, problem.message
        needed, free, missing = (
            int((match[part] or "0").replace(",", "")) for part in ("needed", "free", "missing")
        )
        assert needed - free == missing > 0
