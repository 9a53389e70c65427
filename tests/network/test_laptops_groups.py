"""Who reaches what: rules by group, both ways, and as they change."""

from __future__ import annotations

import json

from network.laptops import Server
from network.laptops_place import LOGIN, MASTER, METADATA, POD, SERVICE, STORAGE, WORLD, Place, pods_routes
from network.node import wait_for

_REGION, _RACK = "10.2.48.16", "10.200.0.2"


def test_a_researcher_reaches_pods_services_and_ssh_nodes(place: Place) -> None:
    with place.laptop.connected(place.access.profile("alan")):
        assert place.region.session("alan") is not None
        for address, port in ((POD, 80), (POD, 22), (SERVICE, 80), (LOGIN, 22)):
            assert place.laptop.asks(address, port) == _REGION, (address, port)
        for address, port in ((LOGIN, 80), (MASTER, 22), (STORAGE, 22), (_REGION, 22), (METADATA, 80)):
            assert place.laptop.asks(address, port) == "", (address, port)
        assert not place.laptop.node.reaches(LOGIN, seconds=1)


def test_pods_are_reached_by_the_overlay_and_else_refused_at_once(place: Place) -> None:
    """The VPC routes pods to its servers: what one sent back there would come again."""
    server, laptop = place.region.node, place.laptop.node
    refused = "Network is unreachable"
    with place.laptop.connected(place.access.profile("ada", at="us-west-2")):
        server.ip("link set flannel.1 down")  # takes its routes along
        try:
            for address in (POD, SERVICE):
                told = laptop.run("socat", "-u", f"tcp:{address}:80", "-", timeout=10)
                assert refused in told.stderr, str(told)
            assert place.laptop.asks(MASTER) == _REGION
        finally:
            server.ip("link set flannel.1 up")
            pods_routes(server)
        for address in (POD, SERVICE):
            assert place.laptop.asks(address) == _REGION


def test_an_engineer_reaches_everything_inside(place: Place) -> None:
    with place.laptop.connected(place.access.profile("ada", at="rack-a")) as ada:
        for address in (POD, SERVICE, LOGIN, MASTER, STORAGE):
            for port in (22, 80):
                assert place.laptop.asks(address, port) == _RACK, (address, port)
        assert place.laptop.node.reaches(MASTER)
        assert place.laptop.asks(_RACK, 22) == ada.address
        # The internet is not the cluster: it is reached from home, as before.
        assert place.laptop.asks(WORLD) == "203.0.113.200"
        assert place.laptop.asks(METADATA) == ""


def test_nobody_reaches_a_laptop(place: Place) -> None:
    profiles = [place.access.profile(user, at="us-west-2") for user in ("ada", "alan")]
    with place.laptop.connected(profiles[0]) as ada, place.desk.connected(profiles[1]) as alan:
        assert ada.address != alan.address
        assert not place.laptop.node.reaches(alan.address, seconds=1)
        assert not place.desk.node.reaches(ada.address, seconds=1)
        place.inside.ip(f"route add 100.64.4.0/24 via {_REGION}")
        assert not place.inside.reaches(ada.address, seconds=1)
        place.inside.ip("route del 100.64.4.0/24")
        assert place.region.node.reaches(ada.address), "the server itself may look whether it is there"


def test_a_spoofed_source_is_dropped(place: Place) -> None:
    profiles = [place.access.profile(user, at="us-west-2") for user in ("ada", "alan")]
    with place.laptop.connected(profiles[0]) as ada, place.desk.connected(profiles[1]):
        seen = place.inside.start("tcpdump", "-n", "-l", "-i", "any", "udp port 9999", name="spoofed")
        wait_for(lambda: "listening" in seen.log(), "tcpdump", nodes=[place.inside])
        send = "echo {0} | socat -u - udp-sendto:{1}:9999,bind={0}"
        # alan's laptop in the name of ada's, of nobody's, of a machine of the cluster, and in its own.
        for source in (ada.address, "100.64.4.77", MASTER):
            place.desk.node.ip(f"address add {source}/32 dev lo")
            place.desk.node.check("sh", "-ec", send.format(source, POD))
            place.desk.node.ip(f"address del {source}/32 dev lo")
        place.desk.node.check("sh", "-ec", f"echo own | socat -u - udp-sendto:{POD}:9999")
        wait_for(lambda: POD in seen.log(), "alan's own packet", nodes=[place.inside])
        seen.stop()
        assert seen.log().count("10.4.0.5.9999") == seen.log().count(f"{_REGION}.")
        assert "100.64.4." not in seen.log()
        assert seen.log().count(f" IP {_REGION}.") == 1


def test_a_laptops_address_is_not_believed_from_elsewhere(place: Place) -> None:
    with place.laptop.connected(place.access.profile("ada", at="us-west-2")) as ada:
        before = _dropped(place.region)
        place.inside.ip(f"address add {ada.address}/32 dev lo")
        place.inside.check("sh", "-ec", f"echo | socat -u - udp-sendto:{_REGION}:9999,bind={ada.address}")
        place.inside.ip(f"address del {ada.address}/32 dev lo")
        wait_for(lambda: _dropped(place.region) > before, "a dropped packet", nodes=[place.region.node])


def _dropped(server: Server) -> int:
    """Packets of laptops' addresses that came in by another interface than a tunnel."""
    told = json.loads(server.node.check("nft", "-j", "list", "chain", "inet", "remote_access", "prerouting"))[
        "nftables"
    ]
    rules = [each["rule"]["expr"] for each in told if "rule" in each]
    (elsewhere,) = (rule for rule in rules if rule[0]["match"]["op"] == "!=" and "iifname" in str(rule[0]))
    return next(int(part["counter"]["packets"]) for part in elsewhere if "counter" in part)
