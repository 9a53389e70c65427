"""What is rendered for VPN servers and laptops, by itself; real daemons take it in test_openvpn_live."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from configparser import ConfigParser
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from golden_clusters import golden
from golden_folders import assert_text, scenarios
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace
from render.tools import needs, run, write
from strategies.outputs import outputs_for
from strategies.reading import read
from strategies.specs import Plain, specs

from infra.errors import UsageError
from infra.model import NO_OUTPUTS, Cluster
from infra.render import strongswan
from infra.render.openvpn import clashes, network_manager, profile, render, unknown_hosts, wireguard
from infra.render.templating import TEMPLATES
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

MESSAGES = Path(__file__).parents[1] / "messages" / "openvpn.txt"
STATIC = TEMPLATES / "openvpn" / "static"
RULES = "etc/nftables/remote-access.nft"


def changed(cluster: Cluster, **vpn: Any) -> Cluster:
    """The same with another remote access."""
    return replace(cluster, access=replace(cluster.access, vpn=replace(cluster.access.vpn, **vpn)))


# -- Servers ----------------------------------------------------------------------------------------------


def test_without_tcp_there_is_one_listener() -> None:
    cluster = golden("research")
    servers = tuple(replace(each, listeners=each.listeners[:1]) for each in cluster.access.vpn.servers)
    only = changed(cluster, servers=servers)
    files = render(only, outputs_for(only))
    assert "rack-a/etc/openvpn/server/tcp.conf" not in files
    assert "tun-tcp" not in files[f"rack-a/{RULES}"]
    assert " tcp\n" not in profile(only, outputs_for(only), "ada")


def test_a_full_tunnel_takes_all() -> None:
    cluster = changed(golden("research"), full_tunnel=True)
    files = render(cluster)
    lines = files["rack-a/etc/openvpn/server/udp.conf"].splitlines()
    assert 'push "redirect-gateway def1"' in lines
    assert 'push "block-ipv6"' in lines
    assert 'push "block-outside-dns"' in lines
    assert not any(line.startswith('push "route ') for line in lines)
    rules = files[f"rack-a/{RULES}"]
    assert "169.254.0.0/16" in rules
    assert rules.count("jump internet") == len(cluster.access.vpn.users)


def test_before_an_apply_no_rule_and_no_resolver_names_what_aws_has_yet_to_place() -> None:
    files = render(golden("research"))
    assert "ssh" not in files[f"rack-a/{RULES}"]
    resolver = files["rack-a/etc/remote-access/dnsmasq.conf"].splitlines()
    assert "local=/research.internal/" in resolver
    assert not [line for line in resolver if line.startswith("server=/research.internal/")]


def test_names_with_more_records_than_an_address_are_asked_for() -> None:
    cluster = golden("research")
    node = cluster.sites[0].nodes[1].fqdn
    assert f"local=/{node}/" in render(cluster)["rack-a/etc/remote-access/dnsmasq.conf"]
    for name in (node, f"deep.below.{node}"):
        some = replace(cluster.dns.records[0], name=name, type="TXT", values=("x",))
        more = replace(cluster, dns=replace(cluster.dns, records=(*cluster.dns.records, some)))
        assert f"local=/{node}/" not in render(more)["rack-a/etc/remote-access/dnsmasq.conf"]


@pytest.mark.parametrize("scenario", scenarios())
@needs("dnsmasq-base", "dnsmasq")
def test_dnsmasq_finds_nothing_wrong(scenario: str, tmp_path: Path) -> None:
    cluster = golden(scenario)
    for outputs in (NO_OUTPUTS, outputs_for(cluster)):
        write(tmp_path, {**render(cluster, outputs), **strongswan.render(cluster, outputs)})
        for path in tmp_path.glob("*/etc/*/dnsmasq.conf"):
            run("dnsmasq", "--test", f"--conf-file={path}")


NAMESPACE = ("unshare", "--map-root-user", "--net")


@pytest.fixture(scope="module")
def namespace() -> None:
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this kernel lets us make no network namespace")


@needs("nftables", "nft")
@pytest.mark.usefixtures("namespace")
@pytest.mark.parametrize("scenario", scenarios())
def test_nftables_takes_the_rules(scenario: str, tmp_path: Path) -> None:
    cluster = golden(scenario)
    for full in (False, True):
        for outputs in (NO_OUTPUTS, outputs_for(cluster)):
            write(tmp_path, render(changed(cluster, full_tunnel=full), outputs))
            for path in tmp_path.glob(f"*/{RULES}"):
                run(*NAMESPACE, "nft", "-f", str(path))


@needs("nftables", "nft")
@pytest.mark.usefixtures("namespace")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs())
def test_nftables_takes_the_rules_of_any_spec(tmp_path_factory: pytest.TempPathFactory, spec: Plain) -> None:
    cluster, _ = resolve(read(spec).spec, Lock(), "lab")
    folder = tmp_path_factory.mktemp("rules")
    write(folder, render(cluster, outputs_for(cluster)))
    for path in folder.glob(f"*/{RULES}"):
        run(*NAMESPACE, "nft", "-f", str(path))


# -- WireGuard -------------------------------------------------------------------------------------------


def test_a_full_tunnel_takes_ipv6_too() -> None:
    cluster = changed(golden("torture"), full_tunnel=True)
    outputs = outputs_for(cluster)
    server, *_ = wireguard.servers_of(cluster.access.vpn, outputs)
    keys = {"private_key": "p", "server_key": "s"}
    address = IPv4Address("100.64.0.9")
    text = wireguard.profile(cluster, outputs, server, whose="on", address=address, **keys)
    assert "AllowedIPs = 0.0.0.0/0, ::/0\n" in text


# -- What is the same on every server ---------------------------------------------------------------------


def test_programs_are_where_whoever_ships_the_tree_makes_them_programs() -> None:
    programs = {
        path.relative_to(STATIC).as_posix()
        for path in STATIC.rglob("*")
        if path.is_file() and path.read_text().startswith("#!")
    }
    assert programs
    assert all(path.startswith(("usr/local/sbin/", "usr/local/lib/causeway/")) for path in programs)


@needs("systemd", "systemd-analyze")
@needs("openvpn")
@needs("dnsmasq-base", "dnsmasq")
def test_systemd_finds_nothing_wrong_with_units() -> None:
    said = subprocess.run(
        [
            "systemd-analyze", "verify", "--man=no", "openvpn-server@udp.service",
            "remote-access-firewall.service", "remote-access-dns.service", "remote-access-expire.timer",
            "remote-access-peers.timer", "remote-access-metrics.timer",
        ],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{STATIC / 'etc' / 'systemd' / 'system'}:"},
        capture_output=True, text=True, check=False,
    ).stderr  # fmt: skip
    # Our programs are on the server, not here.
    assert [line for line in said.splitlines() if "Command /usr/local/sbin/remote-access" not in line] == []


# -- Profiles ---------------------------------------------------------------------------------------------


def remotes(text: str) -> list[str]:
    return [line.removeprefix("remote ") for line in text.splitlines() if line.startswith("remote ")]


def test_a_profile_tries_udp_everywhere_before_tcp() -> None:
    assert remotes(profile(golden("research"), NO_OUTPUTS, "ada")) == [
        "vpn-us-west-2.research.lab.example 1194 udp",
        "vpn-rack-a.research.lab.example 1194 udp",
        "vpn-eu-west-1.research.lab.example 1194 udp",
        "vpn-us-west-2.research.lab.example 443 tcp",
        "vpn-rack-a.research.lab.example 443 tcp",
        "vpn-eu-west-1.research.lab.example 443 tcp",
    ]


def test_random_order_differs_by_user_and_keeps_udp_first() -> None:
    cluster = changed(golden("research"), random=True)
    orders = {
        user.login: remotes(profile(cluster, NO_OUTPUTS, user.login)) for user in cluster.access.vpn.users
    }
    assert len({tuple(order) for order in orders.values()}) > 1
    for order in orders.values():
        assert [line.rpartition(" ")[2] for line in order] == ["udp"] * 3 + ["tcp"] * 3
        assert sorted(order) == sorted(remotes(profile(golden("research"), NO_OUTPUTS, "ada")))


def test_a_profile_demands_the_servers_name() -> None:
    lines = profile(golden("research"), NO_OUTPUTS, "ada").splitlines()
    assert {"verify-x509-name vpn.research.internal name", "remote-cert-tls server"} <= {*lines}
    assert not any(line.startswith("<") for line in lines)


def test_a_server_that_aws_has_yet_to_place_is_left_out() -> None:
    cluster = golden("local")
    assert unknown_hosts(cluster, NO_OUTPUTS) == ("us-west-2",)
    outputs = outputs_for(cluster)
    assert unknown_hosts(cluster, outputs) == ()
    public = outputs.instances["vpn-us-west-2"].public
    assert remotes(profile(cluster, outputs, "ada")) == [f"{public} 1194 udp", f"{public} 443 tcp"]


def test_who_gets_no_profile_and_which_homes_are_in_the_way(request: pytest.FixtureRequest) -> None:
    research, local, torture = golden("research"), golden("local"), golden("torture")
    unplaced = tuple(replace(each, host="") for each in torture.access.vpn.servers)
    public = outputs_for(local).instances["vpn-us-west-2"].public
    refused: list[Callable[[], object]] = [
        partial(profile, research, NO_OUTPUTS, "mallory"),
        partial(profile, changed(research, servers=()), NO_OUTPUTS, "ada"),
        partial(profile, local, NO_OUTPUTS, "ada"),
        partial(wireguard.servers_of, research.access.vpn, NO_OUTPUTS),
        partial(wireguard.servers_of, torture.access.vpn, NO_OUTPUTS, "moon"),
        partial(wireguard.servers_of, replace(torture.access.vpn, servers=unplaced), NO_OUTPUTS),
    ]
    lines = []
    for call in refused:
        with pytest.raises(UsageError) as refusal:
            call()
        lines.append(str(refusal.value))
    homes: list[tuple[Cluster, str]] = [
        (research, "192.168.1.0/24"),
        (research, "172.17.0.0/16"),
        (research, "10.1.0.0/24"),
        (research, "10.1.0.0/16"),
        (research, "10.0.0.0/15"),
        (research, "100.64.2.0/24"),
        (changed(research, full_tunnel=True), "10.0.0.0/15"),
        (local, f"{public}/24"),
    ]
    for cluster, home in homes:
        found = clashes(cluster, IPv4Network(home, strict=False), outputs_for(cluster))
        lines += [f"home {home}:", *(f"    {line}" for line in found or ["-"])]
    assert_text(MESSAGES, "\n".join(lines) + "\n", rewrite=request.config.getoption("--update-golden"))


# -- NetworkManager, whose own parts take it in tests/network ------------------------------------------------


def keyfile(cluster: Cluster) -> ConfigParser:
    text = network_manager(
        cluster, outputs_for(cluster), "ada", "research-ada", "/etc/openvpn/client/research-ada"
    )
    parsed = ConfigParser(delimiters="=", comment_prefixes="#", interpolation=None)
    parsed.read_string(text)
    return parsed


def test_networkmanager_is_told_what_a_profile_says() -> None:
    cluster = golden("research")
    head = profile(cluster, outputs_for(cluster), "ada").splitlines()
    remotes = [tuple(line.split()[1:]) for line in head if line.startswith("remote ")]
    connection = keyfile(cluster)
    assert [tuple(each.split(":")) for each in connection["vpn"]["remote"].split(", ")] == remotes
    assert connection["vpn"]["verify-x509-name"] == f"name:{cluster.access.vpn.name}"
    assert connection["ipv4"]["never-default"] == "true"
    assert connection["ipv6"]["method"] == "disabled"


def test_with_a_full_tunnel_networkmanager_takes_everything() -> None:
    connection = keyfile(changed(golden("research"), full_tunnel=True))
    assert "never-default" not in connection["ipv4"]
    assert connection["ipv6"]["method"] == "auto"
