"""How laptops come in, stay, and come back."""

from __future__ import annotations

from msgspec.structs import replace
from network.laptops import Server, with_vpn
from network.laptops_place import LOGIN, METADATA, POD, STORAGE, WORLD, Place
from network.node import Process, wait_for

from infra.model import Cluster
from infra.model.remote import Vpn

_CROWD = 8


def test_names(place: Place) -> None:
    """Short names too, by the search domains that the server pushes."""
    known = {
        "master-1": "10.2.0.10",
        "titan-a01.research.internal": "10.200.0.11",
        "fs-1.research.internal": "10.2.0.99",
        "web.default.svc.cluster.local": "10.0.16.20",
        "web.default.svc": "10.0.16.20",
        "www.example.org": WORLD,
    }
    before = place.laptop.node.read("/etc/resolv.conf")
    for site, own in (("us-west-2", "100.64.4.1"), ("rack-a", "100.64.2.1")):
        with place.laptop.connected(place.access.profile("alan", at=site)):
            told = place.laptop.node.read("/etc/resolv.conf")
            assert told == f"nameserver {own}\nsearch research.internal cluster.local\n"
            assert {name: place.laptop.resolves(name) for name in known} == known
    assert place.laptop.node.read("/etc/resolv.conf") == before


def test_a_key_that_was_made_on_the_laptop_stays_there(place: Place) -> None:
    request = place.laptop.request("alan@own", "/run/laptop.key")
    text = place.access.profile(
        "alan", at="us-west-2", certificate=place.access.pki.request(request, "alan", "own")
    )
    assert "PRIVATE KEY" not in text
    with place.laptop.connected(text):
        assert place.region.session("alan@own") is not None
        assert place.laptop.asks(POD) == "10.2.48.16"
    region = place.region
    wait_for(lambda: region.session("alan@own") is None, "end of the session", 90, [region.node])


def test_two_devices_of_one_user_behind_one_box(place: Place) -> None:
    profiles = [place.access.profile("alan", device, at="us-west-2") for device in ("", "phone")]
    with place.laptop.connected(profiles[0]) as one, place.desk.connected(profiles[1]) as other:
        sessions = {each["name"]: each for each in place.region.sessions()}
        assert sorted(sessions) == ["alan", "alan@phone"]
        assert {each["from"].rpartition(":")[0] for each in sessions.values()} == {"203.0.113.200"}
        assert one.address != other.address
        for laptop in (place.laptop, place.desk):
            assert laptop.asks(POD) == "10.2.48.16"
        assert (one.times, other.times) == (1, 1)


def test_where_no_udp_passes_tcp_does(place: Place) -> None:
    box = place.lab.nodes["home"]
    box.nft(
        "table ip strict {\n  chain pass {\n    type filter hook forward priority -1\n"
        "    meta l4proto udp drop\n  }\n}\n"
    )
    # Its own resolver is inside such a network; ours stands for it.
    place.laptop.node.write("/etc/hosts", "192.0.2.16 vpn-us-west-2.research.lab.example\n")
    try:
        with place.laptop.connected(place.access.profile("ada", at="us-west-2"), seconds=60) as ada:
            assert ada.host == "192.0.2.16:443"
            assert ada.address.startswith("100.64.5.")
            session = place.region.session("ada")
            assert session is not None
            assert session["listener"] == "tcp"
            assert place.laptop.asks(POD) == "10.2.48.16"
            place.laptop.node.sends(place.inside, STORAGE, 300_000)
    finally:
        place.laptop.node.write("/etc/hosts", "127.0.0.1 localhost laptop\n")
        box.check("nft", "delete", "table", "ip", "strict")


def test_where_a_server_dies_without_a_word_the_next_one_takes_over(place: Place) -> None:
    # It is our own keepalive that notices, after a minute; here sooner, to save the wait.
    sooner = ("--pull-filter", "ignore", "ping-restart", "--ping-restart", "4")
    with place.laptop.connected(place.access.profile("alan"), *sooner) as alan:
        assert alan.host == "192.0.2.16:1194"
        with place.lab.internet.cut("192.0.2.16"):
            alan.wait(60, times=2)
            assert alan.host == "198.51.100.10:1194"
            assert place.laptop.asks(POD) == "10.200.0.2"
            assert place.laptop.resolves("titan-a01") == "10.200.0.11"


def test_a_restart_with_a_crowd_of_laptops(place: Place) -> None:
    server = place.region
    devices = [f"d{number:02}" for number in range(_CROWD)]
    certificates = place.access.pki.clients([("grace", device) for device in devices])
    crowd = place.lab.nodes.get("crowd")
    if crowd is None:
        crowd = place.lab.node("crowd")
        place.lab.internet.attach(crowd, "203.0.113.210")
        crowd.write("/etc/hosts", "192.0.2.16 vpn-us-west-2.research.lab.example\n")
    profiles = {
        f"/run/{certificate.device}.ovpn": _by_udp(
            place.access.profile("grace", at=server.site, certificate=certificate)
        )
        for certificate in certificates
    }
    crowd.write_tree(profiles, 0o600)
    # What is asked is whether all come in: their interfaces would only be in each other's way.
    options = "--dev null --ifconfig-noexec --route-noexec"
    script = f"for each in /run/d*.ovpn; do openvpn --config $each {options} & done; wait"
    laptops = crowd.start("sh", "-c", script, name="crowd")
    try:
        before = _all_in(server)
        place_in_line = {name: each["address"] for name, each in before.items()}
        server.restart("udp")
        after = _all_in(server)
        assert {name: each["address"] for name, each in after.items()} == place_in_line
        told = server.log()
        assert told.count("Peer Connection Initiated") >= _CROWD
        assert place.access.secrets().isdisjoint(told.split())
    finally:
        laptops.stop()
        server.tool("cut", *(f"grace@{device}" for device in devices))


def _by_udp(text: str) -> str:
    """A profile without TCP: that listener gives addresses of its own, and on a busy machine laptops go on to
    it where UDP does not answer at once."""
    kept = [line for line in text.splitlines(True) if not (line.startswith("remote ") and " tcp" in line)]
    assert any(line.startswith("remote ") for line in kept)
    return "".join(kept)


def _all_in(server: Server) -> dict[str, dict[str, object]]:
    def sessions() -> dict[str, dict[str, object]]:
        # A laptop of an earlier test that went without a word is still there for a while.
        found = {each["name"]: each for each in server.sessions() if str(each["name"]).startswith("grace@d")}
        assert len(found) == _CROWD, f"{len(found)} of {_CROWD}"
        return found

    return wait_for(sessions, "all of them", 150, [server.node], every=0.3)


def test_what_did_not_change_goes_on(place: Place) -> None:
    """Other settings for TCP restart that listener alone."""

    def other_port(vpn: Vpn) -> Vpn:
        servers = (
            replace(
                each,
                listeners=tuple(
                    replace(one, port=8443) if one.name == "tcp" else one for one in each.listeners
                ),
            )
            for each in vpn.servers
        )
        return replace(vpn, servers=tuple(servers))

    server = place.region
    with place.laptop.connected(place.access.profile("ada", at=server.site)) as ada:
        before, mark = server.session("ada"), len(server.log("tcp"))
        quiet = len(server.log("udp"))
        try:
            assert server.ship(with_vpn(place.access.cluster, other_port)) == (
                "/etc/openvpn/server/tcp.conf",
            )
            server.wait_log("Initialization Sequence Completed", listener="tcp", after=mark)
            assert server.node.run("ss", "-Hltn", "sport = 8443").stdout
            assert not server.node.run("ss", "-Hltn", "sport = 443").stdout
        finally:
            mark = len(server.log("tcp"))
            server.ship()
            server.wait_log("Initialization Sequence Completed", listener="tcp", after=mark)
        assert server.session("ada") is not None
        assert {**(server.session("ada") or {}), "received": 0, "sent": 0} == {
            **(before or {}),
            "received": 0,
            "sent": 0,
        }
        assert "SIGHUP" not in server.log("udp")[quiet:]
        assert ada.times == 1
        assert place.laptop.asks(POD)


def test_a_session_ends_in_time_and_is_made_anew(place: Place) -> None:
    server = place.rack
    # The timer ends sessions two minutes early, so the laptop is told and is back at once.
    _with_session_seconds(server, 123)
    try:
        with place.laptop.connected(place.access.profile("alan", at=server.site)) as alan:
            before = server.session("alan")
            wait_for(lambda: "alan" in server.tool("expire"), "the timer's work", 20, [server.node])
            alan.wait(times=2)
            after = server.session("alan")
            assert before is not None
            assert after is not None
            assert after["since"] > before["since"]
            assert place.laptop.asks(POD) == "10.200.0.2"
        # Where the timer does not run, OpenVPN's own clock ends it.
        _with_session_seconds(server, 3)
        with place.laptop.connected(place.access.profile("alan", at=server.site)):
            server.wait_log("session-timeout")
            wait_for(lambda: server.session("alan") is None, "end of the session", 30, [server.node])
            assert place.laptop.asks(POD) == ""
    finally:
        _shipped(server, place.access.cluster)


def test_a_full_tunnel_carries_everything_and_nothing_leaks(place: Place) -> None:
    server, box, laptop = place.rack, place.lab.nodes["home"], place.laptop
    cluster = with_vpn(place.access.cluster, lambda vpn: replace(vpn, full_tunnel=True))
    # A home with IPv6, and somebody out there who answers.
    far = "2001:db8:2::1"
    box.ip("address add 2001:db8:1::1/64 dev lan nodad", f"address add {far}/128 dev lo nodad")
    laptop.node.ip(
        "address add 2001:db8:1::20/64 dev eth0 nodad", "route add default via 2001:db8:1::1 dev eth0"
    )
    assert laptop.node.run("ping", "-6", "-c1", "-W2", far).ok
    text = place.access.profile("alan", at=server.site)
    _shipped(server, cluster)
    try:
        leaks = "(ip and not (udp and port 1194)) or (ip6 and host " + far + ")"
        with laptop.connected(text):
            seen = laptop.node.start("tcpdump", "-n", "-l", "-i", "eth0", leaks, name="leaks")
            wait_for(lambda: "listening" in seen.log(), "tcpdump", nodes=[laptop.node])
            assert laptop.asks(WORLD) == "198.51.100.10"
            assert laptop.asks(POD) == "10.200.0.2"
            assert laptop.resolves("www.example.org") == WORLD
            assert laptop.resolves("titan-a01") == "10.200.0.11"
            assert not laptop.node.run("ping", "-6", "-c1", "-W1", far).ok
            # What the group may not reach it may not reach this way either.
            for address, port in ((LOGIN, 80), (METADATA, 80), (STORAGE, 22)):
                assert laptop.asks(address, port) == "", (address, port)
            assert _packets(seen) == []
        assert laptop.node.run("ping", "-6", "-c1", "-W2", far).ok
        wait_for(lambda: _packets(seen), "a packet past the tunnel, now that there is none", 5)
        seen.stop()
    finally:
        _shipped(server, place.access.cluster)
        box.ip("address del 2001:db8:1::1/64 dev lan", f"address del {far}/128 dev lo")
        laptop.node.ip("address del 2001:db8:1::20/64 dev eth0")


def test_no_key_is_told_anywhere(place: Place) -> None:
    secrets = place.access.secrets()
    with place.laptop.connected(place.access.profile("ada", at="us-west-2")) as ada:
        for server in place.servers.values():
            kept = server.node.read("/etc/openvpn/server/server.key")
            assert secrets & set(kept.split()), "these are the keys"
            told = [server.log(listener) for listener in server.daemons]
            told.append(
                server.node.check("sh", "-c", "cat /run/openvpn-server/*.status /run/remote-access/*")
            )
            asked = "state all\\nstatus 3\\nlog all\\nload-stats\\nquit\\n"
            told += [
                server.node.check(
                    "sh", "-c", f"printf '{asked}' | socat -t5 - UNIX:/run/openvpn-server/{name}.sock"
                )
                for name in ("udp", "tcp")
            ]
            assert "OpenVPN STATISTICS" in "".join(told) or "CLIENT_LIST" in "".join(told)
            assert secrets.isdisjoint("\n".join(told).split())
        assert secrets.isdisjoint(ada.log().split())


def _with_session_seconds(server: Server, seconds: int) -> None:
    cluster = server.access.cluster
    _shipped(server, with_vpn(cluster, lambda vpn: replace(vpn, session_seconds=seconds)))


def _shipped(server: Server, cluster: Cluster) -> None:
    """Ships and waits until both listeners have read it."""
    marks = {name: len(server.log(name)) for name in ("udp", "tcp")}
    assert server.ship(cluster)
    for name, mark in marks.items():
        server.wait_log("Initialization Sequence Completed", listener=name, after=mark)


def _packets(seen: Process) -> list[str]:
    return [line for line in seen.log().splitlines() if " > " in line]
