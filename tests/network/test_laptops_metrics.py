"""What a VPN server tells the node exporter: listeners, who is connected, the revocation list's end."""

from __future__ import annotations

import json

from network.laptops import Server
from network.laptops_place import POD, Place
from network.metrics import FOLDER, Samples, collected
from network.node import wait_for

from infra.drive.pki import crl_ends

_TOOL = "/usr/local/sbin/remote-access"


def _collected(server: Server) -> Samples:
    return collected(server.node, "listener", _TOOL, "metrics")


def test_listeners_clients_and_the_list(place: Place) -> None:
    server = place.region
    before = _collected(server)
    assert before["vpn_listener_up", "udp"] == before["vpn_listener_up", "tcp"] == 1
    ends = crl_ends(server.node.read("/etc/openvpn/server/crl.pem"))
    assert before["vpn_crl_end_time_seconds", ""] == ends.timestamp()
    assert before["vpn_firewall", ""] == 1
    with place.laptop.connected(place.access.profile("ada", "metrics", at=server.site)):
        assert _collected(server)["vpn_clients", "udp"] == before["vpn_clients", "udp"] + 1


def test_each_who_is_connected_and_not_from_where(place: Place) -> None:
    """Everybody may open Grafana: the address of a person's home is for `vpn.status` alone."""
    server, received = place.region, "vpn_client_received_bytes_total"
    with place.laptop.connected(place.access.profile("ada", "metrics", at=server.site)):
        assert place.laptop.asks(POD)
        by_device = collected(server.node, "device", _TOOL, "metrics")
        assert by_device[received, "metrics"] > 0
        assert collected(server.node, "user", _TOOL, "metrics")[received, "ada"] > 0
        [session] = [
            each for each in json.loads(server.node.check(_TOOL, "status")) if each["name"] == "ada@metrics"
        ]
        assert collected(server.node, "address", _TOOL, "metrics")[received, session["address"]] > 0
        assert session["from"].partition(":")[0] not in server.node.check("sh", "-c", f"cat {FOLDER}/*.prom")
    wait_for(
        lambda: (received, "metrics") not in collected(server.node, "device", _TOOL, "metrics"),
        "a client less",
        nodes=[server.node],
    )


def test_a_listener_and_a_firewall_that_are_gone(place: Place) -> None:
    server = place.region
    server.daemons["tcp"].stop()
    server.node.check("nft", "delete", "table", "inet", "remote_access")
    told = _collected(server)
    assert (told["vpn_listener_up", "tcp"], told["vpn_listener_up", "udp"]) == (0, 1)
    assert ("vpn_clients", "tcp") not in told
    assert told["vpn_firewall", ""] == 0
    server.start("tcp")
    server.node.check("/usr/local/sbin/remote-access-firewall")
    told = _collected(server)
    assert (told["vpn_listener_up", "tcp"], told["vpn_firewall", ""]) == (1, 1)
