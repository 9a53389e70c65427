"""What the gateways of sites are told, and why so."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from strategies.outputs import outputs_for
from strategies.two_sites import two_sites

from infra.files import Files
from infra.load import load
from infra.model import NO_OUTPUTS, Cluster
from infra.model.tunnels import SiteGateway, SiteTunnel
from infra.render import strongswan
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

Make = Callable[..., Cluster]

ENVIRONMENTS = Path(__file__).parents[2] / "environments"


def cluster_of(path: Path) -> Cluster:
    return resolve(load(path).spec, Lock(), path.stem)[0]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Two sites and a region, with changes."""
    return partial(two_sites, tmp_path)


def rendered(cluster: Cluster) -> Files:
    return strongswan.render(cluster, outputs_for(cluster))


def options(text: str) -> dict[str, str]:
    """Every ``key = value`` of a strongSwan file, the last of each."""
    return dict(re.findall(r"^\s*(\w+) = (.*)$", text, re.MULTILINE))


def connection(files: Files, site: str, tunnel: str) -> dict[str, str]:
    return options(connections(files, site)[tunnel])


def connections(files: Files, site: str) -> dict[str, str]:
    """Of each connection, by name, what stands between its braces."""
    text = files[f"{site}/etc/swanctl/conf.d/site-gateway.conf"]
    return dict(re.findall(r"^    (\S+) \{\n(.*?)^    \}$", text, re.MULTILINE | re.DOTALL))


def tunnel_of(gateway: SiteGateway, name: str) -> SiteTunnel:
    return next(tunnel for tunnel in gateway.tunnels if tunnel.name == name)


# -- What there is ----------------------------------------------------------------------------------------


def test_before_apply_the_tunnels_to_aws_are_missing_and_all_others_are_there(make: Make) -> None:
    cluster = make()
    before = strongswan.render(cluster, NO_OUTPUTS)
    assert {each.site: NO_OUTPUTS.without_remote(each.tunnels) for each in cluster.gateways} == {
        site: ["us-west-2-1", "us-west-2-2"] for site in ("east", "west")
    }
    assert "west-1" in connections(before, "east")
    told = "".join(before.values())
    for word in ("us-west-2", str(tunnel_of(cluster.gateways[0], "us-west-2-1").inside_remote)):
        assert word not in told
    assert [outputs_for(cluster).without_remote(each.tunnels) for each in cluster.gateways] == [[], []]
    assert "us-west-2-2" in connections(rendered(cluster), "east")


def test_nothing_but_what_changes_changes_when_a_tunnel_comes(make: Make) -> None:
    """A reload leaves alone what is as it was: whole files, and connections of the one that has them all."""
    cluster = make()
    before, after = strongswan.render(cluster, NO_OUTPUTS), rendered(cluster)
    assert before.keys() <= after.keys()
    assert {path.partition("/")[2] for path in before if before[path] != after[path]} == {
        "etc/frr/frr.conf",
        "etc/nftables/site-gateway.nft",
        # Outputs tell of machines, too.
        "etc/site-gateway/dnsmasq.conf",
        "etc/site-gateway/hosts",
        "etc/site-gateway/tunnels",
        "etc/swanctl/conf.d/site-gateway.conf",
    }
    kept = connections(before, "east")
    assert kept.items() <= connections(after, "east").items()


def test_a_gateway_without_tunnels_speaks_no_bgp(make: Make) -> None:
    files = strongswan.render(make(network="site_mesh: false"), NO_OUTPUTS)
    assert "bgpd=no" in files["east/etc/frr/daemons"]
    assert "router bgp" not in files["east/etc/frr/frr.conf"]


def test_sites_alone_reach_each_other(make: Make) -> None:
    files = rendered(make(region=""))
    assert list(connections(files, "east")) == ["west-1"]
    assert list(connections(files, "west")) == ["east-1"]


# -- IKE and ESP ------------------------------------------------------------------------------------------


def test_both_ends_of_a_line_between_sites_fit_and_one_begins(make: Make) -> None:
    files = rendered(make())
    here, there = connection(files, "east", "west-1"), connection(files, "west", "east-1")
    assert (here["local_addrs"], here["remote_addrs"]) == (there["remote_addrs"], there["local_addrs"])
    assert (here["proposals"], here["esp_proposals"]) == (there["proposals"], there["esp_proposals"])
    begins, waits = ("start_action", "close_action", "dpd_action"), ("start", "start", "restart")
    assert tuple(here[each] for each in begins) == waits
    assert tuple(there[each] for each in begins) == ("none", "none", "clear")
    assert here["unique"] == there["unique"] == "no"


def test_connection_interface_and_hook_are_of_one_number(make: Make) -> None:
    cluster = make(second=True)
    files = rendered(cluster)
    for gateway in cluster.gateways:
        table = files[f"{gateway.site}/etc/site-gateway/tunnels"]
        for tunnel in gateway.tunnels:
            ike = connection(files, gateway.site, tunnel.name)
            number = f"{tunnel.if_id:#x}"
            assert ike["if_id_in"] == ike["if_id_out"] == number
            assert ike["updown"].endswith(f"/tunnel-updown {tunnel.interface} {number}")
            assert f"\n{tunnel.name} {tunnel.interface} {number} " in table
            assert (
                f" {tunnel.mtu} {tunnel.inside_local}/{tunnel.inside_prefix} {tunnel.peer} {tunnel.metric}\n"
                in table
            )


# -- Routes -----------------------------------------------------------------------------------------------


def test_exactly_the_plan_goes_in_and_out(make: Make) -> None:
    cluster = make()
    files = rendered(cluster)
    for gateway in cluster.gateways:
        text = files[f"{gateway.site}/etc/frr/frr.conf"]
        lists: dict[str, set[IPv4Network]] = {}
        for name, block in re.findall(r"^ip prefix-list (\S+) permit (\S+)$", text, re.MULTILINE):
            lists.setdefault(name, set()).add(IPv4Network(block))
        assert lists.pop("announced") == set(gateway.announces)
        assert lists == {tunnel.name: set(tunnel.accepts) for tunnel in gateway.tunnels}
        # Every entry of every peer's route map asks one of them: what is in none is refused.
        entries = re.findall(r"^route-map (\S+)-(in|out) permit \d+\n (.*)$", text, re.MULTILINE)
        assert len(entries) == 3 * len(gateway.tunnels)
        for name, way, match in entries:
            assert match == f"match ip address prefix-list {name if way == 'in' else 'announced'}"
        for tunnel in gateway.tunnels:
            for way in ("in", "out"):
                assert f"  neighbor {tunnel.inside_remote} route-map {tunnel.name}-{way} {way}\n" in text


def test_static_routes_prefer_by_distance_and_fail_over(make: Make) -> None:
    cluster = make(network="routing: static", second=True)
    text = rendered(cluster)["east/etc/frr/frr.conf"]
    assert "router bgp" not in text
    tunnels = [tunnel for tunnel in cluster.gateways[0].tunnels if tunnel.kind == "aws"]
    [block] = tunnels[0].accepts
    lines = re.findall(rf"^ip route {block} (\S+) (\d+)$", text, re.MULTILINE)
    assert lines == [("reject", "254"), *((each.interface, str(each.metric)) for each in tunnels)]
    assert "bgpd=no" in rendered(cluster)["east/etc/frr/daemons"]


def test_a_drained_tunnel_is_worse_than_any_other_and_better_than_none(make: Make) -> None:
    for network in ("", "routing: static"):
        cluster = make(network=network, second=True)
        table = rendered(cluster)["east/etc/site-gateway/tunnels"]
        rows = [line.split() for line in table.splitlines() if not line.startswith("#")]
        assert len(rows) == len(cluster.gateways[0].tunnels)
        for row in rows:
            preference, metric, drained_preference, drained_metric = map(int, row[6:10])
            assert drained_preference < min(int(each[6]) for each in rows) <= preference
            assert drained_metric > max(int(each[7]) for each in rows) >= metric
            assert not network or drained_metric < 254


# -- The firewall -----------------------------------------------------------------------------------------


def test_each_way_through_each_tunnel_is_fitted_and_filtered(make: Make) -> None:
    cluster = make()
    for gateway in cluster.gateways:
        text = rendered(cluster)[f"{gateway.site}/etc/nftables/site-gateway.nft"]
        for tunnel in gateway.tunnels:
            for way, chain in (("iifname", "from"), ("oifname", "to")):
                (goes,) = re.findall(rf"\n +{way} vmap {{(.*?)}}", text, re.DOTALL)
                assert f'"{tunnel.interface}" : goto {chain}-{tunnel.name},\n' in goes
                (fits,) = re.findall(rf"tcp .* maxseg size set {way} map {{(.*?)}}", text, re.DOTALL)
                assert f'"{tunnel.interface}" : {tunnel.mss},\n' in fits
        # Both ways of each tunnel, what would leave by anything else, and the plan's from and to outside.
        assert text.count("counter drop") == 2 * len(gateway.tunnels) + 3
        accepted = {block for tunnel in gateway.tunnels for block in tunnel.accepts}
        (guard,) = re.findall(r"^ +rt ipsec missing ip daddr { (.*) } counter drop", text, re.MULTILINE)
        kept = {IPv4Network(block) for block in guard.split(", ")}
        assert all(any(block.subnet_of(each) for each in kept) for block in accepted)


def chain(text: str, name: str) -> list[str]:
    """The rules of a chain of the firewall."""
    (rules,) = re.findall(rf"^    chain {name} {{\n(.*?)^    }}$", text, re.MULTILINE | re.DOTALL)
    return [line.strip() for line in rules.splitlines()]


def test_outside_is_what_is_not_known_to_be_inside(make: Make) -> None:
    cluster = make()
    for gateway in cluster.gateways:
        text = rendered(cluster)[f"{gateway.site}/etc/nftables/site-gateway.nft"]
        (inside,) = re.findall(r"set inside {.*?elements = {(.*?)}", text, re.DOTALL)
        assert {*re.findall('"(.*?)"', inside)} == {"lo", *(each.interface for each in gateway.tunnels)}
        for name in ("input", "forward"):
            rules = chain(text, name)
            assert rules[0].endswith("policy drop;")
            assert rules[1] == "iifname @inside accept"
        peers = {str(remote) for remote in map(outputs_for(cluster).remote, gateway.tunnels)}
        for rule in ("meta l4proto esp accept", "udp dport { 500, 4500 } accept"):
            (told,) = re.findall(rf"ip saddr {{ (.*?) }} {re.escape(rule)}", text)
            assert {*told.split(", ")} == peers
        assert not [rule for rule in chain(text, "input") if "tcp dport" in rule]


def test_ssh_is_open_from_where_the_spec_says(make: Make) -> None:
    text = rendered(make(east=", ssh_from: [203.0.113.0/24]"))["east/etc/nftables/site-gateway.nft"]
    assert [rule for rule in chain(text, "input") if rule.endswith("tcp dport 22 accept")] == [
        "ip saddr { 203.0.113.0/24 } tcp dport 22 accept"
    ]


def test_no_packet_meets_more_rules_where_there_are_more_tunnels(make: Make) -> None:
    few, many = make(network="site_mesh: false"), make(second=True)
    assert len(few.gateways[0].tunnels) < len(many.gateways[0].tunnels)
    texts = [rendered(each)["east/etc/nftables/site-gateway.nft"] for each in (few, many)]
    for name in ("input", "forward", "mss", "arriving", "leaving"):
        less, more = ([rule for rule in chain(text, name) if rule[0] != '"'] for text in texts)
        assert len(less) == len(more) > 1, name


def research_with(tmp_path: Path, *changes: tuple[str, str]) -> Cluster:
    """The shipped research environment, with its text changed."""
    text = (ENVIRONMENTS / "research.yaml").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (tmp_path / "research.yaml").write_text(text, encoding="utf-8")
    shutil.copy(ENVIRONMENTS / "base.yaml", tmp_path)
    return cluster_of(tmp_path / "research.yaml")


def test_a_vpn_server_behind_the_gateway_is_reached_through_it(tmp_path: Path) -> None:
    cluster = research_with(
        tmp_path,
        ("[site-gateway, access-gateway]", "[site-gateway]"),
        ("[nfs-server]", "[nfs-server, access-gateway]"),
    )
    firewall = rendered(cluster)["rack-a/etc/nftables/site-gateway.nft"]
    assert "ip daddr 10.200.0.3 udp dport 1194 accept" in chain(firewall, "forward")
    assert not [rule for rule in chain(firewall, "input") if "1194" in rule]


def test_wireguard_is_open_where_openvpn_is(tmp_path: Path) -> None:
    cluster = research_with(tmp_path, ("  vpn: {servers:", "  vpn: {kinds: [openvpn, wireguard], servers:"))
    text = rendered(cluster)["rack-a/etc/nftables/site-gateway.nft"]
    assert {"udp dport 1194 accept", "udp dport 51822 accept"} <= {*chain(text, "input")}
    assert '"wg-laptops",' in text


def test_who_is_outside_has_no_address_of_the_plan(make: Make) -> None:
    cluster = make()
    network = cluster.network
    text = rendered(cluster)["east/etc/nftables/site-gateway.nft"]
    ours = [*(site.lan for site in cluster.sites), *(region.vpc for region in cluster.regions)]
    for name, rule in (
        ("arriving", r"ip saddr { (.*) } counter drop"),
        ("leaving", r"oifname != @inside rt ipsec missing ip daddr { (.*) } counter drop"),
    ):
        (told,) = re.findall(rule, "\n".join(chain(text, name)))
        refused = [IPv4Network(block) for block in told.split(", ")]
        for block in (*ours, network.pods, network.services, network.clients):
            assert any(block.subnet_of(each) for each in refused), block
        # A provider's own machines may have addresses of the supernet.
        assert network.supernet not in refused
