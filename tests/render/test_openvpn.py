"""What is rendered for VPN servers and laptops, by itself; real daemons take it in test_openvpn_live."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from configparser import ConfigParser
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from golden_folders import GOLDEN, LOCK, SPEC, scenarios
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace
from strategies.outputs import outputs_for
from strategies.reading import read
from strategies.specs import Plain, specs

from infra.errors import UsageError
from infra.load import load
from infra.model import NO_OUTPUTS, Cluster
from infra.model.remote import VpnServer
from infra.render.openvpn import clashes, network_manager, profile, render, unknown_hosts, wireguard
from infra.render.templating import TEMPLATES
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock, parse

STATIC = TEMPLATES / "openvpn" / "static"
RULES = "etc/nftables/remote-access.nft"


@cache
def golden(scenario: str) -> Cluster:
    folder = GOLDEN / scenario
    kept = parse((folder / LOCK).read_text(), LOCK)
    return resolve(load(folder / SPEC).spec, kept, scenario)[0]


def changed(cluster: Cluster, **vpn: Any) -> Cluster:
    """The same with another remote access."""
    return replace(cluster, access=replace(cluster.access, vpn=replace(cluster.access.vpn, **vpn)))


def needs(tool: str, package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"needs the package {package}")


def written(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def ran(*command: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
    return done.stdout


# -- Servers ----------------------------------------------------------------------------------------------


def test_a_server_has_a_tree_with_a_file_a_listener() -> None:
    cluster = golden("research")
    files = render(cluster, outputs_for(cluster))
    assert {path.partition("/")[0] for path in files} == {"us-west-2", "rack-a", "eu-west-1"}
    for site in ("us-west-2", "rack-a", "eu-west-1"):
        own = {path for path in files if path.startswith(f"{site}/etc/openvpn/server/")}
        assert own == {f"{site}/etc/openvpn/server/udp.conf", f"{site}/etc/openvpn/server/tcp.conf"}


def test_without_tcp_there_is_one_listener() -> None:
    cluster = golden("research")
    servers = tuple(replace(each, listeners=each.listeners[:1]) for each in cluster.access.vpn.servers)
    only = changed(cluster, servers=servers)
    files = render(only, outputs_for(only))
    assert "rack-a/etc/openvpn/server/tcp.conf" not in files
    assert "tun-tcp" not in files[f"rack-a/{RULES}"]
    assert " tcp\n" not in profile(only, outputs_for(only), "ada")


def test_a_listener_gives_out_what_the_model_says() -> None:
    lines = render(golden("research"))["rack-a/etc/openvpn/server/udp.conf"].splitlines()
    for line in (
        "port 1194", "proto udp4", "multihome", "dev tun-udp", "topology subnet", "tun-mtu 1396",
        "server 100.64.2.0 255.255.255.0", "max-clients 253", "session-timeout 604800",
        "explicit-exit-notify 1", 'push "route 10.4.0.0 255.252.0.0"', 'push "dhcp-option DNS 100.64.2.1"',
        'push "dhcp-option DOMAIN research.internal"', 'push "dhcp-option DOMAIN-SEARCH cluster.local"',
    ):  # fmt: skip
        assert line in lines, line
    tcp = render(golden("research"))["us-west-2/etc/openvpn/server/tcp.conf"].splitlines()
    assert "proto tcp4-server" in tcp
    assert not {"multihome", "explicit-exit-notify 1"} & set(tcp)
    assert not any("redirect-gateway" in line or "block-outside-dns" in line for line in [*lines, *tcp])


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
    assert "internet" not in render(golden("research"))[f"rack-a/{RULES}"]


def test_rules_have_a_chain_for_each_user_of_the_spec() -> None:
    rules = render(golden("research"), outputs_for(golden("research")))[f"rack-a/{RULES}"]
    for login, group in (("ada", "engineers"), ("alan", "researchers"), ("grace", "researchers")):
        assert f"\tchain user-{login} {{\n\t\tjump group-{group}\n\t\tcounter reject" in rules


def test_machines_that_aws_has_yet_to_place_are_in_no_rule() -> None:
    cluster = golden("research")
    assert (
        'tcp dport { 22 } counter accept comment "ssh"'
        in render(cluster, outputs_for(cluster))[f"rack-a/{RULES}"]
    )
    assert "ssh" not in render(cluster)[f"rack-a/{RULES}"]


def test_laptops_leave_in_the_name_of_a_server_whose_address_is_known() -> None:
    files = render(golden("research"))
    assert "snat ip to 10.200.0.2" in files[f"rack-a/{RULES}"]
    assert "snat" not in files[f"us-west-2/{RULES}"]


def test_a_resolver_asks_those_who_know() -> None:
    cluster = golden("research")
    files, path = render(cluster, outputs_for(cluster)), "etc/remote-access/dnsmasq.conf"
    assert "server=/research.internal/10.2.0.2\n" in files[f"us-west-2/{path}"]
    assert "listen-address=10.2.48.16\n" in files[f"us-west-2/{path}"]
    assert (
        "server=/research.internal/10.2.48.16@10.200.0.2\nserver=/research.internal/10.1.48.17@10.200.0.2\n"
        in files[f"rack-a/{path}"]
    )
    assert "local=/research.internal/" not in files[f"rack-a/{path}"]
    early = render(cluster)
    assert "server=/research.internal/" not in early[f"rack-a/{path}"]
    assert "local=/research.internal/\n" in early[f"rack-a/{path}"]
    assert "10.200.0.11 titan-a01.research.internal\n" in early["rack-a/etc/remote-access/hosts"]
    assert "10.2.0.10   master-1.research.internal\n" in files["rack-a/etc/remote-access/hosts"]


def test_names_with_more_records_than_an_address_are_asked_for() -> None:
    cluster = golden("research")
    node = cluster.sites[0].nodes[1].fqdn
    assert f"local=/{node}/" in render(cluster)["rack-a/etc/remote-access/dnsmasq.conf"]
    for name in (node, f"deep.below.{node}"):
        some = replace(cluster.dns.records[0], name=name, type="TXT", values=("x",))
        more = replace(cluster, dns=replace(cluster.dns, records=(*cluster.dns.records, some)))
        assert f"local=/{node}/" not in render(more)["rack-a/etc/remote-access/dnsmasq.conf"]


@pytest.mark.parametrize("scenario", scenarios())
@needs("dnsmasq", "dnsmasq-base")
def test_dnsmasq_finds_nothing_wrong(scenario: str, tmp_path: Path) -> None:
    cluster = golden(scenario)
    for outputs in (NO_OUTPUTS, outputs_for(cluster)):
        written(tmp_path, render(cluster, outputs))
        for path in tmp_path.glob("*/etc/remote-access/dnsmasq.conf"):
            assert "syntax check OK" in ran("dnsmasq", "--test", f"--conf-file={path}")


NAMESPACE = ("unshare", "--map-root-user", "--net")


def in_namespace() -> bool:
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@needs("nft", "nftables")
@pytest.mark.skipif(not in_namespace(), reason="this kernel lets us make no network namespace")
@pytest.mark.parametrize("scenario", scenarios())
def test_nftables_takes_the_rules(scenario: str, tmp_path: Path) -> None:
    cluster = golden(scenario)
    for full in (False, True):
        for outputs in (NO_OUTPUTS, outputs_for(cluster)):
            written(tmp_path, render(changed(cluster, full_tunnel=full), outputs))
            for path in tmp_path.glob(f"*/{RULES}"):
                ran(*NAMESPACE, "nft", "-f", str(path))


@needs("nft", "nftables")
@pytest.mark.skipif(not in_namespace(), reason="this kernel lets us make no network namespace")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs())
def test_nftables_takes_the_rules_of_any_spec(tmp_path_factory: pytest.TempPathFactory, spec: Plain) -> None:
    cluster, _ = resolve(read(spec).spec, Lock(), "lab")
    folder = tmp_path_factory.mktemp("rules")
    written(folder, render(cluster, outputs_for(cluster)))
    for path in folder.glob(f"*/{RULES}"):
        ran(*NAMESPACE, "nft", "-f", str(path))


# -- WireGuard -------------------------------------------------------------------------------------------


def test_where_wireguard_is_not_spoken_there_is_none_of_it() -> None:
    files = render(golden("research"))
    assert not any(path.endswith("/etc/wireguard/wg-laptops.conf") for path in files)
    assert "wg-laptops" not in files[f"rack-a/{RULES}"]


def test_a_users_devices_go_to_the_chain_of_the_user() -> None:
    cluster = golden("torture")
    vpn = cluster.access.vpn
    assert vpn.wireguard is not None
    [user] = vpn.users
    server = vpn.servers[0]
    listener = server.listeners[-1]
    files = render(cluster)
    rules = files[f"{server.site}/{RULES}"]
    assert f"\t\t\t{user.devices} : goto user-{user.login},\n" in rules
    assert rules.count('iifname "wg-laptops" ip saddr vmap @peers') == 2
    assert f'iifname "wg-laptops" ip saddr != {vpn.wireguard.clients} counter drop' in rules
    lines = files[f"{server.site}/etc/wireguard/wg-laptops.conf"].splitlines()
    assert f"Address = {listener.address}/{vpn.wireguard.clients.prefixlen}" in lines
    assert f"ListenPort = {listener.port}" in lines
    # Someone's own routes must not change with who is let in.
    assert "Table = off" in lines
    assert f"listen-address={listener.address}\n" in files[f"{server.site}/etc/remote-access/dnsmasq.conf"]


def test_both_kinds_fit_into_what_tcp_is_told() -> None:
    vpn = golden("torture").access.vpn
    assert vpn.wireguard is not None
    assert vpn.mss == min(vpn.mtu, vpn.wireguard.mtu) - 40
    assert vpn.wireguard.mtu <= 1412


def test_a_full_tunnel_takes_ipv6_too() -> None:
    cluster = changed(golden("torture"), full_tunnel=True)
    outputs = outputs_for(cluster)
    server, *_ = wireguard.servers_of(cluster.access.vpn, outputs)
    keys = {"private_key": "p", "server_key": "s"}
    address = IPv4Address("100.64.0.9")
    text = wireguard.profile(cluster, outputs, server, whose="on", address=address, **keys)
    assert "AllowedIPs = 0.0.0.0/0, ::/0\n" in text


def test_before_an_apply_a_device_is_told_why_there_is_no_profile() -> None:
    with pytest.raises(UsageError, match="not known yet"):
        wireguard.servers_of(replace(golden("torture").access.vpn, servers=_unplaced()), NO_OUTPUTS)


def _unplaced() -> tuple[VpnServer, ...]:
    """Servers whose address AWS has yet to decide."""
    return tuple(replace(each, host="") for each in golden("torture").access.vpn.servers)


# -- What is the same on every server ---------------------------------------------------------------------


@needs("shellcheck", "shellcheck")
def test_scripts_are_plain_shell() -> None:
    scripts = [
        path for path in STATIC.rglob("*") if path.is_file() and path.read_text().startswith("#!/bin/sh")
    ]
    assert len(scripts) == 3
    ran("shellcheck", "--shell=sh", *map(str, scripts))


def test_programs_are_where_whoever_ships_the_tree_makes_them_programs() -> None:
    programs = {
        path.relative_to(STATIC).as_posix()
        for path in STATIC.rglob("*")
        if path.is_file() and path.read_text().startswith("#!")
    }
    assert programs
    assert all(path.startswith(("usr/local/sbin/", "usr/local/lib/causeway/")) for path in programs)


@needs("systemd-analyze", "systemd")
@needs("openvpn", "openvpn")
@needs("dnsmasq", "dnsmasq-base")
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
    assert "verify-x509-name vpn.research.internal name" in lines
    assert "remote-cert-tls server" in lines
    assert not any(line.startswith("<") for line in lines)


def test_a_server_that_aws_has_yet_to_place_is_left_out() -> None:
    cluster = golden("local")
    assert unknown_hosts(cluster, NO_OUTPUTS) == ("us-west-2",)
    with pytest.raises(UsageError, match="no VPN server's address is known yet"):
        profile(cluster, NO_OUTPUTS, "ada")
    outputs = outputs_for(cluster)
    assert unknown_hosts(cluster, outputs) == ()
    public = outputs.instances["vpn-us-west-2"].public
    assert remotes(profile(cluster, outputs, "ada")) == [f"{public} 1194 udp", f"{public} 443 tcp"]


def test_nobody_else_gets_a_profile() -> None:
    cluster = golden("research")
    with pytest.raises(UsageError, match="mallory gets no profile"):
        profile(cluster, NO_OUTPUTS, "mallory")
    without = replace(cluster, access=replace(cluster.access, vpn=replace(cluster.access.vpn, servers=())))
    with pytest.raises(UsageError, match=r"access\.vpn\.servers: there is no VPN server"):
        profile(without, NO_OUTPUTS, "ada")


# -- Homes ------------------------------------------------------------------------------------------------


def test_an_ordinary_home_is_in_nobodys_way() -> None:
    for home in ("192.168.1.0/24", "192.168.178.0/24", "172.17.0.0/16"):
        assert clashes(golden("research"), IPv4Network(home), outputs_for(golden("research"))) == ()


@pytest.mark.parametrize(
    ("home", "told"),
    [
        ("10.1.0.0/24", "10.1.0.0/24 of the cluster will not be reached"),
        ("10.1.0.0/16", "either the cluster's 10.1.0.0/16 or the home network"),
        ("10.0.0.0/15", "10.1.0.0/16 of the home network is out of reach while connected"),
        ("100.64.2.0/24", "overlaps laptops' at rack-a range 100.64.2.0/24"),
    ],
)
def test_a_home_that_overlaps_is_told(home: str, told: str) -> None:
    found = clashes(golden("research"), IPv4Network(home))
    assert any(told in line for line in found), found
    assert all("give the home network another range" in line for line in found)


def test_with_a_full_tunnel_the_home_network_stays_the_laptops_own() -> None:
    cluster = changed(golden("research"), full_tunnel=True)
    [line] = clashes(cluster, IPv4Network("10.0.0.0/15"))[1:]
    assert "10.1.0.0/16 of the cluster will not be reached: the laptop looks for it at home" in line


def test_a_server_inside_the_home_network_is_told() -> None:
    cluster = golden("local")
    outputs = outputs_for(cluster)
    public = outputs.instances["vpn-us-west-2"].public
    assert isinstance(public, IPv4Address)
    [line] = clashes(cluster, IPv4Network(f"{public}/24", strict=False), outputs)
    assert f"the VPN server at us-west-2 ({public})" in line


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
    found = keyfile(cluster)
    assert [tuple(each.split(":")) for each in found["vpn"]["remote"].split(", ")] == remotes
    assert found["vpn"]["verify-x509-name"] == f"name:{cluster.access.vpn.name}"
    assert found["ipv4"]["never-default"] == "true"
    assert found["ipv6"]["method"] == "disabled"


def test_with_a_full_tunnel_networkmanager_takes_everything() -> None:
    found = keyfile(changed(golden("research"), full_tunnel=True))
    assert "never-default" not in found["ipv4"]
    assert found["ipv6"]["method"] == "auto"
