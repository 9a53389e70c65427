"""What the gateways of sites are told, and why so."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from golden_folders import GOLDEN, SPEC
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
    assert strongswan.missing(cluster, NO_OUTPUTS) == tuple(
        (site, f"us-west-2-{number}") for site in ("east", "west") for number in (1, 2)
    )
    assert "west-1" in connections(before, "east")
    told = "".join(before.values())
    for word in ("us-west-2", str(tunnel_of(cluster.gateways[0], "us-west-2-1").inside_remote)):
        assert word not in told
    assert strongswan.missing(cluster, outputs_for(cluster)) == ()
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


def test_no_gateway_no_files(tmp_path: Path) -> None:
    assert rendered(cluster_of(GOLDEN / "minimal" / SPEC)) == {}


@pytest.mark.parametrize("scenario", ["research", "transit", "torture"])
def test_no_key_is_in_any_file(scenario: str) -> None:
    for path, text in rendered(cluster_of(GOLDEN / scenario / SPEC)).items():
        assert "secrets" not in text, path
        assert not re.search(r"secret *=", text), path


# -- IKE and ESP ------------------------------------------------------------------------------------------


def test_both_ends_of_a_line_between_sites_fit_and_one_begins(make: Make) -> None:
    files = rendered(make())
    here, there = connection(files, "east", "west-1"), connection(files, "west", "east-1")
    assert (here["local_addrs"], here["remote_addrs"]) == (there["remote_addrs"], there["local_addrs"])
    assert (here["proposals"], here["esp_proposals"]) == (there["proposals"], there["esp_proposals"])
    begins, waits = ("start_action", "close_action", "dpd_action"), ("start", "start", "restart")
    assert tuple(here[each] for each in begins) == waits
    assert tuple(there[each] for each in begins) == ("none", "none", "clear")
    assert here["unique"] == there["unique"] == "no", "or reauthentication would be turned away"


def test_with_aws_whoever_comes_second_is_turned_away(make: Make) -> None:
    aws = connection(rendered(make()), "east", "us-west-2-1")
    assert (aws["unique"], aws["start_action"], aws["keyingtries"]) == ("keep", "start", "0")


def test_behind_nat_no_local_address_and_all_in_udp(make: Make) -> None:
    aws = connection(rendered(make(nat=True)), "east", "us-west-2-1")
    assert "local_addrs" not in aws
    assert aws["encap"] == "yes"
    assert connection(rendered(make()), "east", "us-west-2-1")["encap"] == "no"


def test_each_public_address_has_its_own_tunnels(make: Make) -> None:
    files = rendered(make(second=True))
    local = [connection(files, "east", f"us-west-2-{number}")["local_addrs"] for number in (1, 2, 3, 4)]
    assert local == ["198.51.100.1", "198.51.100.1", "198.51.100.2", "198.51.100.2"]
    remote = {connection(files, "east", f"us-west-2-{number}")["remote_addrs"] for number in (1, 2, 3, 4)}
    assert len(remote) == 4


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
            assert f" {tunnel.mtu} {tunnel.inside_local}/{tunnel.inside_prefix} {tunnel.peer}\n" in table


def test_a_dead_peer_is_noticed_in_some_20_seconds(make: Make) -> None:
    """strongswan.conf(5), "IKEv2 RETRANSMISSION": the n-th wait is timeout * base ** n."""
    files = rendered(make())
    daemon = options(files["east/etc/strongswan.d/site-gateway.conf"])
    timeout, base = float(daemon["retransmit_timeout"]), float(daemon["retransmit_base"])
    waits = [timeout * base**number for number in range(int(daemon["retransmit_tries"]) + 1)]
    silence = int(connection(files, "east", "us-west-2-1")["dpd_delay"].removesuffix("s"))
    assert 15 < silence + sum(waits) < 25
    assert 0.36 ** len(waits) < 0.005, "an exchange over a line that loses every fifth packet"


def test_no_log_level_that_shows_keys(make: Make) -> None:
    """strongswan.conf(5), "LOGGER CONFIGURATION": 4 includes keys."""
    text = rendered(make())["east/etc/strongswan.d/site-gateway.conf"]
    levels = [int(level) for level in re.findall(r"(?:default|enc|ike|cfg) = (-?\d+)", text)]
    assert levels
    assert max(levels) <= 1


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


def test_both_directions_prefer_the_same_tunnel(make: Make) -> None:
    """AWS's MED decides within a connection, and ours for AWS; a connection is preferred as a whole."""
    text = rendered(make(second=True))["east/etc/frr/frr.conf"]
    pattern = r"^route-map us-west-2-\d-{} permit 10\n match .*\n set {} (\d+)$(?:\n set metric \+(\d+)$)?"
    inwards = re.findall(pattern.format("in", "local-preference"), text, re.MULTILINE)
    outwards = [int(told) for told, _ in re.findall(pattern.format("out", "metric"), text, re.MULTILINE)]
    (one, two, three, four) = ((int(preference), int(more or 0)) for preference, more in inwards)
    assert one[0] == two[0] > three[0] == four[0]
    # Where AWS tells the same of both. It lowers a MED by more than that.
    assert (one[1], two[1], three[1], four[1]) == (0, 1, 0, 1)
    assert outwards == sorted(set(outwards))
    assert " bgp deterministic-med\n" in text
    assert "always-compare-med" not in text, "what two ASes tell is not to be compared"
    assert "  maximum-paths 1\n" in text


def test_a_peer_that_tells_too_much_is_tried_again(make: Make) -> None:
    cluster = make()
    text = rendered(cluster)["east/etc/frr/frr.conf"]
    told = re.findall(r"^  neighbor (\S+) maximum-prefix (\d+) restart (\d+) force$", text, re.MULTILINE)
    peers = {str(tunnel.inside_remote) for tunnel in cluster.gateways[0].tunnels}
    assert {(peer, most, minutes) for peer, most, minutes in told} == {(each, "1000", "5") for each in peers}


@pytest.mark.parametrize("daemon", ["frr", "strongswan"])
def test_daemons_are_started_again_however_often_they_end(make: Make, daemon: str) -> None:
    unit = rendered(make())[f"east/etc/systemd/system/{daemon}.service.d/10-site-gateway.conf"]
    head, _, service = unit.partition("[Service]")
    assert "\nStartLimitIntervalSec=0\n" in head
    assert "\nRestart=always\n" in service


def test_later_frr_keeps_the_defaults_of_the_oldest(make: Make) -> None:
    """From 8.3 on a peer whose hold time is over would by default be waited for (RFC 8538)."""
    text = rendered(make())["east/etc/frr/frr.conf"]
    assert text.index("frr version 8.1\n") < text.index("router bgp")


def test_static_routes_prefer_by_distance_and_fail_over(make: Make) -> None:
    cluster = make(network="routing: static", second=True)
    text = rendered(cluster)["east/etc/frr/frr.conf"]
    assert "router bgp" not in text
    tunnels = [tunnel for tunnel in cluster.gateways[0].tunnels if tunnel.kind == "aws"]
    [block] = tunnels[0].accepts
    lines = re.findall(rf"^ip route {block} (\S+) (\d+)$", text, re.MULTILINE)
    assert lines == [("reject", "254"), *((each.interface, str(each.metric)) for each in tunnels)]
    assert "bgpd=no" in rendered(cluster)["east/etc/frr/daemons"]


def test_a_site_with_static_routes_and_one_with_bgp_join_statically(make: Make) -> None:
    cluster = make(east=", routing: static")
    files = rendered(cluster)
    west = files["west/etc/frr/frr.conf"]
    assert "ip route 10.200.0.0/24 t1-east 10\n" in west
    assert "description east-1" not in west
    assert "description us-west-2-1" in west
    assert "router bgp" not in files["east/etc/frr/frr.conf"]


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
        # Both ways of each tunnel, what would leave by anything else, and the plan's addresses outside.
        assert text.count("counter drop") == 2 * len(gateway.tunnels) + 2
        accepted = {block for tunnel in gateway.tunnels for block in tunnel.accepts}
        (guard,) = re.findall(r"rt ipsec missing ip daddr { (.*) } counter drop", text)
        kept = {IPv4Network(block) for block in guard.split(", ")}
        assert all(any(block.subnet_of(each) for each in kept) for block in accepted)


def chain(text: str, name: str) -> list[str]:
    """The rules of a chain of the firewall."""
    (found,) = re.findall(rf"^    chain {name} {{\n(.*?)^    }}$", text, re.MULTILINE | re.DOTALL)
    return [line.strip() for line in found.splitlines()]


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


def test_ssh_and_the_vpn_server_are_open_where_they_are(make: Make) -> None:
    text = rendered(make(east=", ssh_from: [203.0.113.0/24]"))["east/etc/nftables/site-gateway.nft"]
    assert "ip saddr { 203.0.113.0/24 } tcp dport 22 accept" in chain(text, "input")
    research = rendered(cluster_of(GOLDEN / "research" / SPEC))
    text = research["rack-a/etc/nftables/site-gateway.nft"]  # the access gateway, too
    assert {"udp dport 1194 accept", "tcp dport 443 accept"} <= {*chain(text, "input")}
    assert '"tun-udp",' in text
    assert not [
        rule for rule in chain(research["rack-b/etc/nftables/site-gateway.nft"], "input") if "1194" in rule
    ]


def test_a_vpn_server_behind_the_gateway_is_reached_through_it(tmp_path: Path) -> None:
    for path in ENVIRONMENTS.glob("*.yaml"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    spec = tmp_path / "research.yaml"
    text = spec.read_text(encoding="utf-8")
    for before, after in (
        ("[site-gateway, access-gateway]", "[site-gateway]"),
        ("[nfs-server]", "[nfs-server, access-gateway]"),
    ):
        assert before in text
        text = text.replace(before, after, 1)
    spec.write_text(text, encoding="utf-8")
    firewall = rendered(cluster_of(spec))["rack-a/etc/nftables/site-gateway.nft"]
    assert "ip daddr 10.200.0.3 udp dport 1194 accept" in chain(firewall, "forward")
    assert not [rule for rule in chain(firewall, "input") if "1194" in rule]


def test_wireguard_is_open_where_openvpn_is(tmp_path: Path) -> None:
    for path in ENVIRONMENTS.glob("*.yaml"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    spec = tmp_path / "both.yaml"
    kinds = "access: {vpn: {kinds: [openvpn, wireguard]}}"
    spec.write_text(f"extends: research.yaml\n{kinds}\n", encoding="utf-8")
    text = rendered(cluster_of(spec))["rack-a/etc/nftables/site-gateway.nft"]
    assert {"udp dport 1194 accept", "udp dport 51822 accept"} <= {*chain(text, "input")}
    assert '"wg-laptops",' in text


def test_who_is_outside_has_no_address_of_the_plan(make: Make) -> None:
    cluster = make()
    network = cluster.network
    text = rendered(cluster)["east/etc/nftables/site-gateway.nft"]
    (told,) = re.findall(r"ip saddr { (.*) } counter drop", "\n".join(chain(text, "arriving")))
    refused = [IPv4Network(block) for block in told.split(", ")]
    ours = [*(site.lan for site in cluster.sites), *(region.vpc for region in cluster.regions)]
    for block in (*ours, network.pods, network.services, network.clients):
        assert any(block.subnet_of(each) for each in refused), block
    # A provider's own machines may have addresses of the supernet.
    assert network.supernet not in refused
