"""Gateways of physical sites: what each end of each tunnel is."""

from __future__ import annotations

from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from strategies.two_sites import two_sites as _two_sites

from infra.catalogue import packets
from infra.load import load
from infra.model import Cluster
from infra.model.tunnels import SiteGateway, SiteTunnel
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

ENVIRONMENTS = Path(__file__).parents[2] / "environments"

REGION = "a-region-with-a-long-name"

two_sites = partial(_two_sites, second=True, region=REGION)


def named(gateway: SiteGateway) -> dict[str, SiteTunnel]:
    return {tunnel.name: tunnel for tunnel in gateway.tunnels}


def test_both_tunnels_of_each_public_address_to_each_region(tmp_path: Path) -> None:
    east, west = two_sites(tmp_path).gateways
    assert sorted(named(east)) == [*(f"{REGION}-{number}" for number in (1, 2, 3, 4)), "west-1"]
    assert sorted(named(west)) == [f"{REGION}-1", f"{REGION}-2", "east-1"]
    third = named(east)[f"{REGION}-3"]
    assert (third.local, third.link, third.number) == (
        IPv4Address("198.51.100.2"),
        f"east-{REGION}-2",
        1,
    )


def test_earlier_tunnels_are_preferred_by_both_ends(tmp_path: Path) -> None:
    east, _ = two_sites(tmp_path).gateways
    ours = [tunnel for tunnel in east.tunnels if tunnel.kind == "aws"]
    assert [tunnel.preference for tunnel in ours] == [200, 200, 190, 190], (
        "AWS says which of a connection's two"
    )
    assert [tunnel.handicap for tunnel in ours] == [0, 1, 0, 1]
    assert [tunnel.metric for tunnel in ours] == sorted({each.metric for each in ours})
    assert all(0 < tunnel.metric < 255 for tunnel in ours), "FRR: a static route's distance is 1 to 255"


def test_interfaces_have_names_and_numbers_of_their_own(tmp_path: Path) -> None:
    for gateway in (*two_sites(tmp_path).gateways, *shipped("research").gateways):
        names = {tunnel.interface for tunnel in gateway.tunnels}
        numbers = {tunnel.if_id for tunnel in gateway.tunnels}
        assert len(names) == len(numbers) == len(gateway.tunnels)
        assert all(len(name) <= 15 for name in names)
        assert 0 not in numbers, "ip-link(8): 0 is no if_id"


def test_the_two_ends_of_a_line_between_sites_fit_together(tmp_path: Path) -> None:
    east, west = two_sites(tmp_path).gateways
    here, there = named(east)["west-1"], named(west)["east-1"]
    assert (here.local, here.remote) == (there.remote, there.local)
    assert (here.inside_local, here.inside_remote) == (there.inside_remote, there.inside_local)
    assert (here.secret, here.link, here.if_id) == (there.secret, there.link, there.if_id)
    assert (here.remote_asn, there.remote_asn) == (west.asn, east.asn)
    assert (here.accepts, there.accepts) == (west.announces, east.announces)
    assert (here.initiates, there.initiates) == (True, False)


def test_whoever_hides_behind_nat_calls(tmp_path: Path) -> None:
    east, west = two_sites(tmp_path, west_nat=True).gateways
    here, there = named(east)["west-1"], named(west)["east-1"]
    assert (here.initiates, there.initiates) == (False, True)
    assert here.encapsulated
    assert there.encapsulated
    assert there.local is None
    assert there.local_id == "198.51.100.3"
    assert here.mtu == there.mtu == 1438


def test_sites_may_stay_apart(tmp_path: Path) -> None:
    cluster = two_sites(tmp_path, network="site_mesh: false")
    assert all(tunnel.kind == "aws" for gateway in cluster.gateways for tunnel in gateway.tunnels)
    assert not any("east-west" in block.owner for block in cluster.network.blocks)


def test_timers_follow_the_spec(tmp_path: Path) -> None:
    ipsec = two_sites(tmp_path, network="hold: 30s").network.ipsec
    assert (ipsec.hold, ipsec.keepalive) == (30, 10)


def test_a_line_with_pppoe_narrows_the_tunnels_of_its_own_site(tmp_path: Path) -> None:
    cluster = two_sites(tmp_path, east=", path_mtu: 1492")
    east, west = map(named, cluster.gateways)
    assert {each.mtu for each in east.values()} == {1438}
    assert (west["east-1"].mtu, west[f"{REGION}-1"].mtu) == (1438, 1446)
    assert cluster.kubernetes.overlay.mtu == 1438 - packets.VXLAN


def test_jumbo_frames_go_as_far_as_both_lines_carry_them(tmp_path: Path) -> None:
    east, west = map(named, two_sites(tmp_path, network="path_mtu: 9000").gateways)
    assert (east["west-1"].mtu, east[f"{REGION}-1"].mtu) == (packets.esp(9000, encapsulated=False), 1446)
    east, west = map(named, two_sites(tmp_path, network="path_mtu: 9000", east=", path_mtu: 1500").gateways)
    assert east["west-1"].mtu == west["east-1"].mtu == 1446


@pytest.mark.parametrize("environment", ["local", "research"])
def test_our_end_renews_before_aws_does(environment: str) -> None:
    ipsec = shipped(environment).network.ipsec
    earliest = ipsec.rekey_margin * (100 + ipsec.rekey_fuzz_percent) // 100
    assert ipsec.esp_rekey < ipsec.phase2_lifetime - earliest
    assert ipsec.ike_rekey < ipsec.phase1_lifetime - earliest


@pytest.mark.parametrize(
    ("path", "encapsulated", "inside"),
    [(1500, False, 1446), (1500, True, 1438), (1492, False, 1438), (9001, False, 8946)],
)
def test_what_fits_into_esp(path: int, encapsulated: bool, inside: int) -> None:
    assert packets.esp(path, encapsulated=encapsulated) == inside


def shipped(environment: str) -> Cluster:
    return resolve(load(ENVIRONMENTS / f"{environment}.yaml").spec, Lock(), environment)[0]


@pytest.mark.parametrize("routing", ["bgp", "static"])
def test_tunnels_are_routed_as_their_sites_are(tmp_path: Path, routing: str) -> None:
    cluster = two_sites(tmp_path, network=f"routing: {routing}")
    assert {tunnel.routing for gateway in cluster.gateways for tunnel in gateway.tunnels} == {routing}


def test_public_addresses_belong_to_two_gateways_in_turn(tmp_path: Path) -> None:
    first, second, _ = _two_sites(tmp_path, standby=True).gateways
    assert [(each.node, each.tree) for each in (first, second)] == [
        ("gate-e", "east"),
        ("gate-f", "east.standby"),
    ]
    assert sorted(named(first)) == ["us-west-2-1", "us-west-2-2", "west-1"]
    assert sorted(named(second)) == ["us-west-2-3", "us-west-2-4", "west-2"]
    assert {str(each.local) for each in second.tunnels} == {"198.51.100.2"}
    assert first.failover is not None
    assert second.failover is not None
    assert (first.failover.other, second.failover.other) == (second.address, first.address)
    assert (first.failover.preferred, second.failover.preferred) == (True, False)


def test_a_standby_is_not_the_gateway_because_it_comes_first_by_name(tmp_path: Path) -> None:
    first, second, _ = _two_sites(tmp_path, standby=True, standby_node="a-gate").gateways
    assert [(each.node, each.tree) for each in (first, second)] == [
        ("gate-e", "east"),
        ("a-gate", "east.standby"),
    ]


def test_a_standby_in_charge_is_better_than_what_the_other_one_said_before_it_died(tmp_path: Path) -> None:
    first, second, _ = _two_sites(tmp_path, standby=True).gateways
    assert max(each.leading_metric for each in second.tunnels) < min(each.metric for each in first.tunnels)
    assert max(each.metric for each in first.tunnels) < min(each.metric for each in second.tunnels)
    assert all(each.leading_metric == each.metric for each in first.tunnels)


def test_a_site_with_one_gateway_lets_the_others_meds_decide(tmp_path: Path) -> None:
    """Local preference, and MEDs of its own, would come before those."""
    _, _, west = _two_sites(tmp_path, standby=True).gateways
    ends = [each for each in west.tunnels if each.kind == "site"]
    assert [each.name for each in ends] == ["east-1", "east-2"]
    assert len({(each.preference, each.metric, each.handicap) for each in ends}) == 1


@pytest.mark.parametrize("stated", ["", "    router: 10.200.0.4\n"])
def test_machines_of_a_lan_with_two_gateways_have_the_virtual_address_as_router(
    tmp_path: Path, stated: str
) -> None:
    _two_sites(tmp_path, standby=True)
    spec = tmp_path / "tiny.yaml"
    spec.write_text(spec.read_text().replace("    kind: physical\n", f"    kind: physical\n{stated}", 1))
    east, _ = resolve(load(spec).spec, Lock(), "tiny")[0].sites
    routers = {node.name: (str(node.router), [str(each) for each in node.resolvers]) for node in east.nodes}
    assert routers["node"] == ("10.200.0.4", ["10.200.0.4"])
    assert {routers[name][0] for name in ("gate-e", "gate-f")} == {"10.200.0.1"}, "not one of themselves"
