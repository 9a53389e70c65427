"""WireGuard beside OpenVPN on one server: devices come in, reach what their groups may, and are cut at once.

The server begins as a machine with the packages and nothing else; `invoke` makes a VPN server of it over real
SSH, and `systemctl.py` starts what its units say. Where this kernel has no WireGuard, wg-quick(8) takes
wireguard-go: the same packets, from a program. `CAUSEWAY_LAB=vm` runs it all on a kernel that has it.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from network.engineer import Engineer, ssh_missing
from network.laptops import PASSPHRASE, Laptop
from network.laptops_place import HOME, MASTER, POD, Place, specs
from network.metrics import Samples, collected
from network.node import Node, wait_for

from infra.drive.vpn.wireguard import new_private_key, public_key

_SITE, _ADDRESS, _INSIDE = "eu-west-1", "192.0.2.18", "10.1.48.18"
_PORT = 2222
"""Of OpenSSH: port 22 tells who asks."""
_TOOL = "/usr/local/sbin/remote-access"

# resolvconf(8) of a Linux laptop, for one without it.
_RESOLVCONF = """#!/bin/sh
set -eu
case $1 in
-a) cp /etc/resolv.conf /run/resolv.conf && cat >/etc/resolv.conf ;;
-d) cat /run/resolv.conf >/etc/resolv.conf ;;
esac
"""


@dataclass
class Desk:
    """An engineer's, and a server that speaks both kinds."""

    engineer: Engineer
    server: Node

    def profile(self, user: str, *options: str) -> str:
        told = self.engineer.asked("vpn.profile", "--user", user, "--server", _SITE, *options)
        assert told["failed"] == {}
        return (self.engineer.folder / str(told["file"])).read_text()

    def status(self) -> Any:
        """Tunnels to AWS are down here, so it ends with 1."""
        return json.loads(self.engineer.invoke("vpn.status", "--json").stdout)

    def devices(self) -> dict[str, dict[str, object]]:
        """As the server sees them, by name."""
        told = json.loads(self.server.check(_TOOL, "status"))
        return {each["name"]: each for each in told if each["listener"] == "wireguard"}


def wg_quick(node: Node, word: str) -> None:
    """`up` or `down`, with a person's PATH."""
    node.check(
        "env", "PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "wg-quick", word, "causeway", timeout=60
    )


@contextmanager
def up(laptop: Laptop, text: str) -> Iterator[str]:
    """A tunnel by wg-quick until the end of the `with`; gives the device's address."""
    node = laptop.node
    node.write("/usr/local/sbin/resolvconf", _RESOLVCONF, 0o755)
    node.write("/etc/wireguard/causeway.conf", text, 0o600)
    wg_quick(node, "up")
    try:
        yield next(line for line in text.splitlines() if line.startswith("Address")).split()[2][:-3]
    finally:
        wg_quick(node, "down")


@pytest.fixture(scope="module")
def desk(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    if package := ssh_missing():
        pytest.skip(f"needs the package {package}")
    for tool, package in (("systemctl", "systemd"), ("wg-quick", "wireguard-tools")):
        if shutil.which(tool) is None:
            pytest.skip(f"needs the package {package}")
    has = "modprobe -q wireguard; ip link add probe type wireguard && ip link delete probe"
    if not place.inside.run("sh", "-c", has).ok and shutil.which("wireguard-go") is None:
        pytest.skip("needs the package wireguard-go, or a kernel with WireGuard")
    # The engineer's PKI is its own: nobody else's certificates are touched.
    access, folder = place.access, tmp_path_factory.mktemp("wireguard")
    kinds = (
        "vpn: {servers: [us-west-2, rack-a, eu-west-1]}",
        "vpn: {kinds: [openvpn, wireguard], servers: [eu-west-1]}",
    )
    passphrase = {"CAUSEWAY_SECRETS_KEY": access.key, "CAUSEWAY_PKI_PASSPHRASE": PASSPHRASE}
    engineer = Engineer.made(folder, "research", specs(kinds), access.outputs, passphrase)
    with place.bare_server("wireguard", public=_ADDRESS, address=_INSIDE, router="10.1.255.2") as server:
        # Older kernels have the sizes of sockets' buffers outside of namespaces alone.
        server.write("/usr/local/sbin/sysctl", '#!/bin/sh\nexec /usr/sbin/sysctl --ignore "$@"\n', 0o755)
        host = access.server(_SITE)
        engineer.reaches(host.fqdn, server, by=place.inside, address=_INSIDE, port=_PORT)
        for laptop in (place.laptop, place.desk):
            laptop.node.write("/etc/hosts", f"127.0.0.1 localhost\n{_ADDRESS} {host.host}\n")
        engineer.done("vpn.init")
        engineer.done("vpn.push", "--site", _SITE)
        yield Desk(engineer, server)
        for laptop in (place.laptop, place.desk):
            laptop.node.write("/etc/hosts", f"127.0.0.1 localhost {laptop.node.name}\n")
        engineer.close()


def test_devices_reach_what_their_groups_may(place: Place, desk: Desk) -> None:
    private = new_private_key()
    alan = desk.profile("alan", "--device", "phone", "--qr")
    ada = desk.profile("ada", "--public-key", public_key(private))
    ada = ada.replace("# PrivateKey =", f"PrivateKey = {private}")
    with up(place.laptop, alan) as one, up(place.desk, ada) as other:
        assert place.laptop.asks(POD) == _INSIDE
        assert place.laptop.asks(MASTER) == ""
        assert place.desk.asks(MASTER) == _INSIDE
        assert place.laptop.resolves("titan-a01.research.internal") == "10.200.0.11"
        seen = desk.devices()
        assert {name: each["address"] for name, each in seen.items()} == {"alan@phone": one, "ada": other}
        assert str(seen["alan@phone"]["from"]).startswith(HOME)
        assert not place.laptop.node.run("ping", "-c", "1", "-W", "2", other).ok
        # Of who has the server's address for its own, nothing is believed but what its key is for.
        place.laptop.node.ip(f"address add {other}/32 dev causeway")
        source = place.laptop.node.run("ping", "-c", "1", "-W", "2", "-I", other, POD)
        assert not source.ok
        place.laptop.node.ip(f"address delete {other}/32 dev causeway")


def test_openvpn_goes_on_beside_it(place: Place, desk: Desk) -> None:
    told = desk.engineer.asked("vpn.profile", "--user", "grace")
    with (
        up(place.laptop, desk.profile("alan", "--kind", "wireguard")),
        place.desk.connected((desk.engineer.folder / told["file"]).read_text()),
    ):
        assert place.laptop.asks(POD) == place.desk.asks(POD) == _INSIDE


def test_a_revocation_cuts_one_and_the_other_goes_on(place: Place, desk: Desk) -> None:
    alan, ada = (desk.profile(user, "--device", "desk") for user in ("alan", "ada"))
    with up(place.laptop, alan), up(place.desk, ada):
        assert place.laptop.asks(POD) == place.desk.asks(POD) == _INSIDE
        assert (place.laptop.asks(MASTER), place.desk.asks(MASTER)) == ("", _INSIDE)
        listed = {each["device"] for each in desk.status()["devices"]}
        assert {"alan@desk", "ada@desk"} <= listed
        pings = place.desk.node.pinging(POD)
        told = desk.engineer.asked("vpn.revoke", "--user", "alan")
        assert told["failed"] == {}
        assert "alan@desk" in told["devices"]
        assert place.laptop.asks(POD) == ""
        assert place.desk.asks(POD) == _INSIDE
        assert pings.stop().lost == 0
        assert not [name for name in desk.devices() if name.startswith("alan")]
        # Nor by another handshake.
        wg_quick(place.laptop.node, "down")
        wg_quick(place.laptop.node, "up")
        assert place.laptop.asks(POD) == ""
    states = {(row["user"], row["device"]): row["state"] for row in desk.engineer.asked("vpn.list")}
    assert (states["alan", "desk"], states["ada", "desk"]) == ("revoked", "valid")


def test_a_push_changes_nothing_and_another_group_counts_at_once(place: Place, desk: Desk) -> None:
    researcher, engineer = (f"uid: 10003, groups: [{group}]" for group in ("researchers", "engineers"))
    with up(place.laptop, desk.profile("grace", "--device", "phone")):
        assert place.laptop.asks(MASTER) == ""
        pings = place.laptop.node.pinging(POD)
        (told,) = desk.engineer.asked("vpn.push", "--site", _SITE)
        assert (told["changed"], told["error"]) == ([], "")
        desk.engineer.change(researcher, engineer)
        try:
            (told,) = desk.engineer.asked("vpn.push", "--site", _SITE)
            assert told["changed"] == ["/etc/nftables/remote-access.nft"]
            assert place.laptop.asks(MASTER) == _INSIDE
        finally:
            desk.engineer.change(engineer, researcher)
            desk.engineer.done("vpn.push", "--site", _SITE)
        assert place.laptop.asks(MASTER) == ""
        assert pings.stop().lost == 0


def test_a_key_whose_time_is_over_ends_without_a_push(place: Place, desk: Desk) -> None:
    text = desk.profile("ada", "--device", "old")
    with up(place.laptop, text):
        assert place.laptop.asks(POD) == _INSIDE
        known = json.loads(desk.server.read("/etc/remote-access/peers.json"))
        for each in known["peers"]:
            each["until"] = 1 if each["name"] == "ada@old" else each["until"]
        desk.server.write("/etc/remote-access/peers.json", json.dumps(known), 0o600)
        desk.server.check(_TOOL, "peers")  # as its timer does
        assert place.laptop.asks(POD) == ""


def test_a_reload_of_wg_quicks_unit_cuts_nobody(place: Place, desk: Desk) -> None:
    with up(place.laptop, desk.profile("ada", "--device", "stays")):
        assert place.laptop.asks(POD) == _INSIDE
        units = "/etc/systemd/system/wg-quick@wg-laptops.service.d/remote-access.conf"
        reload = [line for line in desk.server.read(units).splitlines() if line.startswith("ExecReload=/")]
        desk.server.check(*reload[-1].partition("=")[2].split())
        wait_for(lambda: place.laptop.asks(POD) == _INSIDE, "an answer", nodes=[place.laptop.node])
        assert "ada@stays" in desk.devices()


def test_devices_are_counted_for_prometheus(place: Place, desk: Desk) -> None:
    def counted() -> Samples:
        return collected(desk.server, "listener", _TOOL, "metrics")

    with up(place.laptop, desk.profile("ada", "--device", "counted")):
        assert place.laptop.asks(POD) == _INSIDE
        told = counted()
        assert told["vpn_listener_up", "wireguard"] == told["vpn_listener_up", "udp"] == 1
        recent = [
            each for each in desk.devices().values() if time.time() - float(str(each["handshake"])) < 170
        ]
        assert told["vpn_clients", "wireguard"] >= len(recent) >= 1
        by_device = collected(desk.server, "device", _TOOL, "metrics")
        assert by_device["vpn_client_received_bytes_total", "counted"] > 0
