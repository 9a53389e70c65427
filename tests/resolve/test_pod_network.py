"""The pods' network: packets that fit every line, whatever is between two nodes."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies.reading import read, resolved
from strategies.specs import Plain, physical_sites, specs

from infra.errors import SpecError
from infra.model import Cluster

WHOLE = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ADDED = {"vxlan": 50, "host-gw": 0, "wireguard": 60}
TAKEN_OFF = {"vxlan": 50, "host-gw": 0, "wireguard": 80}


def lines(cluster: Cluster) -> Iterator[int]:
    """What each line carries, by what was decided of it elsewhere."""
    for _ in cluster.regions:
        yield 9001
    for _ in cluster.network.peerings:
        yield 8500
    for site in cluster.sites:
        yield site.mtu
    for gateway in cluster.gateways:
        for tunnel in gateway.tunnels:
            yield tunnel.mtu


@WHOLE
@given(specs())
def test_pods_packets_fit_every_line_and_fill_the_narrowest(spec: Plain) -> None:
    cluster = resolved(**spec)
    overlay = cluster.kubernetes.overlay
    assert overlay.overhead == ADDED[overlay.backend]
    assert overlay.mtu + overlay.overhead == min(lines(cluster))
    assert overlay.told - TAKEN_OFF[overlay.backend] == overlay.mtu
    # Laptops' packets go on to pods.
    assert cluster.access.vpn.mtu <= overlay.mtu


@WHOLE
@given(specs(), physical_sites(7))
def test_one_more_rack_never_makes_room(spec: Plain, rack: Plain) -> None:
    before = resolved(**spec)
    more = deepcopy(spec)
    more["sites"]["rack-7"] = rack
    assert resolved(**more).kubernetes.overlay.mtu <= before.kubernetes.overlay.mtu


@WHOLE
@given(specs(), st.integers(576, 9216))
def test_a_stated_size_holds_where_it_fits_and_is_refused_elsewhere(spec: Plain, stated: int) -> None:
    most = resolved(**spec).kubernetes.overlay.mtu
    said = deepcopy(spec)
    said["kubernetes"]["pods"]["mtu"] = stated
    if stated > most:
        with pytest.raises(SpecError, match=f"at most {most}"):
            read(said)
    else:
        overlay = resolved(**said).kubernetes.overlay
        assert (overlay.mtu, overlay.why) == (stated, "kubernetes.pods.mtu")


SPEC: Plain = {"images": {"cpu": {}}, "sites": {"us-west-2": {"kind": "aws", "primary": True}}}
RACK: Plain = {
    "kind": "physical",
    "cidr": "10.200.0.0/24",
    "nodes": {"gate": {"address": "10.200.0.2", "cpus": 4, "memory": "8 GiB", "roles": ["site-gateway"]}},
    "gateway": {"addresses": ["198.51.100.10"]},
}
EAST: Plain = {"kind": "aws"}


def with_sites(**sites: Plain) -> Plain:
    return {
        **SPEC,
        "sites": {**SPEC["sites"], **{name.replace("_", "-"): site for name, site in sites.items()}},
    }


@pytest.mark.parametrize(
    ("spec", "mtu", "why"),
    [
        (SPEC, 9001 - 50, "us-west-2's VPC"),
        (with_sites(us_east_1=EAST), 8500 - 50, "the peering of us-east-1 and us-west-2"),
        (with_sites(rack=RACK), 1446 - 50, "the tunnels between rack and us-west-2"),
        (
            with_sites(rack={**RACK, "gateway": {"addresses": ["198.51.100.10"], "behind_nat": True}}),
            1438 - 50,
            "the tunnels between rack and us-west-2",
        ),
        (with_sites(rack={**RACK, "mtu": 1400}), 1400 - 50, "rack's LAN"),
        # AWS's end takes no more than the internet's usual size.
        (
            {**with_sites(rack={**RACK, "mtu": 9000}), "network": {"path_mtu": 9000}},
            1446 - 50,
            "the tunnels between rack and us-west-2",
        ),
        ({**SPEC, "kubernetes": {"pods": {"backend": "wireguard"}}}, 9001 - 60, "us-west-2's VPC"),
    ],
    ids=["region", "regions", "rack", "nat", "lan", "jumbo", "wireguard"],
)  # fmt: skip
def test_sizes(spec: Plain, mtu: int, why: str) -> None:
    overlay = resolved(**spec).kubernetes.overlay
    assert (overlay.mtu, overlay.why) == (mtu, why)


def test_the_rest_of_a_vpc_reaches_pods_by_its_access_gateway() -> None:
    assert resolved(**SPEC).kubernetes.overlay.routers == {"us-west-2": "vpn-us-west-2"}
    elsewhere = {**with_sites(us_east_1=EAST), "access": {"vpn": {"servers": ["us-east-1"]}}}
    assert resolved(**elsewhere).kubernetes.overlay.routers == {"us-east-1": "vpn-us-east-1"}


def test_only_racks_send_pods_packets_as_they_are() -> None:
    assert resolved(**with_sites(rack=RACK)).kubernetes.overlay.direct == ("rack",)
    wireguard = {**with_sites(rack=RACK), "kubernetes": {"pods": {"backend": "wireguard"}}}
    assert resolved(**wireguard).kubernetes.overlay.direct == ()
