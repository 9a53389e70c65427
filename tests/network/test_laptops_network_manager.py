"""Laptops with NetworkManager: the real one with its plugin for OpenVPN connects to real servers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from network.daemons import bus, without_udev
from network.laptops import Laptop
from network.laptops_place import HOME, POD, REGION, WORLD, Place
from network.node import wait_for

PLUGIN = "/usr/lib/NetworkManager/nm-openvpn-service"

# Without polkit: only root asks here.
_SETTINGS = """\
[main]
plugins=keyfile
dns=default
rc-manager=file
auth-polkit=false
no-auto-default=*
"""


# A connection needs one below it.
_HOME = """\
[connection]
id=home
type=ethernet
interface-name=eth0
[ipv4]
method=manual
address1=192.168.178.30/24,192.168.178.1
dns=198.51.100.80;
[ipv6]
method=disabled
"""


@pytest.fixture(scope="module")
def laptop(place: Place) -> Iterator[Laptop]:
    """One whose network is NetworkManager's."""
    if shutil.which("nmcli") is None or place.laptop.node.run("test", "-x", PLUGIN).code:
        pytest.skip("needs the packages network-manager and network-manager-openvpn")
    made = Laptop.behind(place.home, "desktop", "192.168.178.30/24", "192.168.178.1", WORLD)
    node = made.node
    without_udev(node)
    node.check("mkdir", "-p", "/var/lib/NetworkManager", "/etc/NetworkManager/system-connections")
    # What the plugin's package makes: OpenVPN ends up there, as a user of its own, and can read nothing else.
    chroot = "/var/lib/openvpn/chroot"
    node.check("install", "-d", "-o", "nm-openvpn", "-g", "nm-openvpn", chroot, f"{chroot}/tmp")
    node.write("/etc/NetworkManager/NetworkManager.conf", _SETTINGS)
    node.write("/etc/NetworkManager/system-connections/home.nmconnection", _HOME, 0o600)
    bus(node)
    node.start("NetworkManager", "--debug", "--log-level=INFO", name="NetworkManager")
    node.wait_for(lambda: node.run("nmcli", "connection", "up", "home").ok, "network")
    yield made
    place.lab.remove(node)


@contextmanager
def connected(laptop: Laptop, connection: str) -> Iterator[None]:
    laptop.node.check("nmcli", "--wait", "60", "connection", "up", connection, timeout=70)
    try:
        yield
    finally:
        laptop.node.check("nmcli", "--wait", "30", "connection", "down", connection, timeout=40)


def way(laptop: Laptop, address: str) -> str:
    """The kind of interface that an address is reached by: ``tun``, ``eth``."""
    (route,) = json.loads(laptop.node.check("ip", "-json", "route", "get", address))
    return str(route["dev"]).rstrip("0123456789")


def test_our_connection_sends_the_clusters_traffic_alone(place: Place, laptop: Laptop) -> None:
    archive = place.access.network_manager("alan", "research-alan", at=REGION)
    laptop.node.check("tar", "-x", "-C", "/", stdin=archive)
    laptop.node.check("nmcli", "connection", "reload")
    with connected(laptop, "research-alan"):
        assert (way(laptop, POD), way(laptop, WORLD)) == ("tun", "eth")
        assert laptop.asks(POD) == "10.2.48.16"
        assert laptop.asks(WORLD) == HOME
        assert laptop.resolves("web.default.svc") == "10.0.16.20"
        assert laptop.resolves("www.example.org") == WORLD
        (link,) = json.loads(laptop.node.check("ip", "-json", "link", "show", "type", "tun"))
        assert link["mtu"] == place.access.cluster.access.vpn.mtu
        session = place.region.session("alan")
        assert session is not None
        assert session["listener"] == "udp"
    assert way(laptop, POD) == "eth"


def test_a_profile_that_is_imported_takes_everything_until_the_box_is_ticked(
    place: Place, laptop: Laptop
) -> None:
    """Why there is a connection of its own, and what the docs say of the box."""
    node = laptop.node
    node.write("/tmp/alan.ovpn", place.access.profile("alan", at=REGION), 0o600)
    # The importer puts certificates and keys below the person's home.
    node.check(
        "env", "HOME=/tmp", "nmcli", "connection", "import", "type", "openvpn", "file", "/tmp/alan.ovpn"
    )
    with connected(laptop, "alan"):
        assert way(laptop, WORLD) == "tun"
        assert laptop.asks(WORLD) == ""
    node.check("nmcli", "connection", "modify", "alan", "ipv4.never-default", "yes")
    with connected(laptop, "alan"):
        assert (way(laptop, POD), way(laptop, WORLD)) == ("tun", "eth")
        assert laptop.asks(POD) == "10.2.48.16"
        assert laptop.asks(WORLD) == HOME


def test_a_key_that_was_made_on_the_laptop_stays_there(place: Place, laptop: Laptop) -> None:
    node, pki = laptop.node, place.access.pki
    made = pki.request(laptop.request("alan@own", "/run/alan.key"), "alan", "own")
    archive = place.access.network_manager("alan", "research-alan-own", at=REGION, certificate=made)
    node.check("tar", "-x", "-C", "/", stdin=archive)
    key = "/etc/openvpn/client/research-alan-own/client.key"
    assert not node.exists(key)
    node.check("install", "-m", "600", "/run/alan.key", key)
    node.check("nmcli", "connection", "reload")
    with connected(laptop, "research-alan-own"):
        assert laptop.asks(POD) == "10.2.48.16"
        assert place.region.session("alan@own") is not None


def test_a_key_that_is_not_there_is_named(place: Place, laptop: Laptop) -> None:
    region = place.region
    wait_for(lambda: region.session("ada") is None, "end of earlier sessions", 150, [region.node])
    archive = place.access.network_manager("ada", "research-ada", at=REGION)
    laptop.node.check("tar", "-x", "-C", "/", "--exclude=*.key", stdin=archive)
    laptop.node.check("nmcli", "connection", "reload")
    refused = laptop.node.run("nmcli", "--wait", "30", "connection", "up", "research-ada", timeout=40)
    assert not refused.ok
    assert place.region.session("ada") is None
