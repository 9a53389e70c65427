"""What a VPN server tells the node exporter: listeners, who is connected, the revocation list's end."""

from __future__ import annotations

from network.laptops import Server
from network.laptops_place import Place
from network.metrics import Samples, collected

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
