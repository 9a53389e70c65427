"""That the real daemons run side by side in the lab, with the least configuration that joins two of each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from network.daemons import Charon, Frr, dnsmasq, openvpn
from network.lab import Lab, OverlayMember, overlay, pod, service
from network.node import wait_for

_SWANCTL = """\
connections {{
  t1 {{
    version = 2
    local_addrs = {local}
    remote_addrs = {remote}
    proposals = aes256gcm16-prfsha384-ecp384
    if_id_in = 1
    if_id_out = 1
    local {{ auth = psk
      id = {local} }}
    remote {{ auth = psk
      id = {remote} }}
    children {{ c1 {{
      local_ts = 0.0.0.0/0
      remote_ts = 0.0.0.0/0
      esp_proposals = aes256gcm16-ecp384
      start_action = {start}
    }} }}
  }}
}}
secrets {{ ike-1 {{ secret = only-for-this-test }} }}
"""

_FRR = """\
ip prefix-list all permit 0.0.0.0/0 le 32
router bgp {own}
 no bgp ebgp-requires-policy
 neighbor {neighbour} remote-as {theirs}
 neighbor {neighbour} timers connect 1
 address-family ipv4 unicast
  network {network}
"""

_SITE, _REGION = "198.51.100.10", "203.0.113.20"


@pytest.fixture(scope="module")
def ends(lab: Lab) -> tuple[Charon, Charon]:
    """Two nodes with a tunnel between them and BGP over it."""
    site, region = lab.node("site"), lab.node("region")
    for node, own, other, inside, start, frr in (
        (region, _REGION, _SITE, "169.254.6.1", "none", (64512, "169.254.6.2", 65000, "10.9.0.0/24")),
        (site, _SITE, _REGION, "169.254.6.2", "start", (65000, "169.254.6.1", 64512, "10.8.0.0/24")),
    ):
        lab.internet.attach(node, own)
        node.forwards()
        node.write("/etc/strongswan.d/lab.conf", "charon-systemd { install_routes = no }\n")
        node.write(
            "/etc/swanctl/conf.d/t1.conf", _SWANCTL.format(local=own, remote=other, start=start), 0o600
        )
        own_as, neighbour, theirs, network = frr
        node.write(
            "/etc/frr/frr.conf", _FRR.format(own=own_as, neighbour=neighbour, theirs=theirs, network=network)
        )
        node.ip(
            "link add t1 mtu 1438 type xfrm dev wan if_id 1",
            f"address add {inside}/30 dev t1",
            "link set t1 up",
            "link add inner type dummy",
            f"address add {network.replace('.0/24', '.1/24')} dev inner",
            "link set inner up",
        )
    with ThreadPoolExecutor() as together:
        far, near = together.map(Charon.start, (region, site))
        list(together.map(Frr.start, (region, site)))
    far.load()
    near.load()
    return near, far


def test_tunnel_and_bgp(ends: tuple[Charon, Charon]) -> None:
    near, far = ends
    site, region = near.node, far.node
    near.wait_established("c1")
    assert far.established() == {"c1"}
    wait_for(lambda: site.reaches("169.254.6.1"), "ping through the tunnel", nodes=[site, region])
    wait_for(lambda: site.routes().get("10.9.0.0/24") == "t1", "route to the region", nodes=[site, region])
    wait_for(lambda: region.routes().get("10.8.0.0/24") == "t1", "route to the site", nodes=[site, region])
    pings = site.pings("10.9.0.1", count=20, interval=0.05)
    assert pings.lost == 0
    assert site.fits("10.9.0.1", 1438)
    assert not site.fits("10.9.0.1", 1439)
    seen = region.start("tcpdump", "-n", "-l", "-c", "1", "-i", "wan", "esp")
    wait_for(
        lambda: site.reaches("10.9.0.1") and "ESP(" in seen.log(), "ESP on the wire", nodes=[site, region]
    )


def test_tcp_through_the_tunnel(ends: tuple[Charon, Charon]) -> None:
    near, far = ends
    site, region = near.node, far.node
    wait_for(lambda: site.routes().get("10.9.0.0/24") == "t1", "route to the region", nodes=[site, region])
    site.sends(region, "10.9.0.1")
    segment = site.throughput(region, "10.9.0.1", 1).segment
    assert segment == 1438 - 40 - 12  # headers, and the time stamps' option


def test_openvpn(lab: Lab) -> None:
    server, client = lab.node("vpn-server"), lab.node("vpn-client")
    lab.internet.attach(server, "198.51.100.30")
    lab.internet.attach(client, "198.51.100.31")
    folder = "/etc/openvpn"
    server.check(
        "sh", "-ec", f"cd {folder}; umask 077; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256"
        " -nodes -keyout key -out certificate -days 2 -subj /CN=lab",
    )  # fmt: skip
    for node in (server, client):
        node.write_tree(
            {name: server.read(f"{folder}/{name}") for name in ("key", "certificate")}, 0o600, folder
        )
    common = "dev tun\nca certificate\ncert certificate\nkey key\nverb 3\ndh none\n"
    server.write(f"{folder}/server.conf", f"{common}server 10.7.0.0 255.255.255.0\ntopology subnet\n")
    client.write(f"{folder}/client.conf", f"{common}client\nremote 198.51.100.30\nnobind\n")
    daemons = [openvpn(server, f"{folder}/server.conf"), openvpn(client, f"{folder}/client.conf")]
    wait_for(lambda: client.reaches("10.7.0.1"), "ping through OpenVPN", nodes=[server, client])
    assert all(daemon.running for daemon in daemons)


def test_overlay_and_service(lab: Lab) -> None:
    lan = lab.segment("nodes")
    workers = [lab.node(f"worker-{number}") for number in (1, 2)]
    for number, worker in enumerate(workers, 1):
        lan.attach(worker, "eth0", f"10.20.0.{number}/24")
    overlay(
        [OverlayMember(worker, f"10.20.0.{n}", f"10.42.{n}.0/24") for n, worker in enumerate(workers, 1)],
        mtu=1450,
    )
    pods = [
        pod(lab, f"pod-{n}", worker, f"10.42.{n}.2/24", f"10.42.{n}.1", 1450)
        for n, worker in enumerate(workers, 1)
    ]
    assert pods[0].reaches("10.42.2.2")
    assert pods[0].fits("10.42.2.2", 1450)
    service(workers[0], "10.43.0.10", {80: ("10.42.2.2", 8080)})
    answering = pods[1].start("socat", "TCP-LISTEN:8080,fork,reuseaddr", "SYSTEM:hostname")
    wait_for(
        lambda: pods[0].run("socat", "-u", "TCP:10.43.0.10:80", "-").stdout == "pod-2\n",
        "service",
        nodes=pods,
    )
    assert answering.running


def test_resolver(lab: Lab) -> None:
    node = lab.node("resolver")
    lab.internet.attach(node, "198.51.100.53")  # who has no address is not told any
    dnsmasq(node, "--listen-address=127.0.0.1", "--host-record=master.lab,10.0.0.9")
    node.write("/etc/resolv.conf", "nameserver 127.0.0.1\n")
    wait_for(lambda: "10.0.0.9" in node.check("getent", "ahostsv4", "master.lab"), "answer", nodes=[node])


def test_regions_are_peered_but_no_transit(lab: Lab) -> None:
    one, other = lab.node("vpc-1"), lab.node("vpc-2")
    for node, address in ((one, "10.31.0.1/16"), (other, "10.32.0.1/16")):
        node.ip("link add inner type dummy", f"address add {address} dev inner", "link set inner up")
    lan = lab.segment("site-lan")
    site = lab.node("beyond")
    lan.attach(site, "eth0", "10.30.0.9/16", gateway="10.30.0.1")
    lan.attach(one, "site", "10.30.0.1/16")
    inside, host = lab.segment("vpc-1-net"), lab.node("vpc-1-host")
    inside.attach(one, "net", "10.31.1.1/24")
    inside.attach(host, "eth0", "10.31.1.9/24", gateway="10.31.1.1")
    lab.peer(one, ["10.31.0.0/16"], other, ["10.32.0.0/16"])
    other.ip("route add 10.30.0.0/16 via 169.254.255.0 dev p-vpc-1")
    assert host.reaches("10.32.0.1")
    assert not site.reaches("10.32.0.1", seconds=1)
