"""The lab's machine, and labs on it, for all tests in this folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from network import algorithms
from network.lab import Lab
from network.laptops_place import Place, draw, place_machine
from network.machine import Machine
from network.machine import machine as made_machine
from network.node import TEST_SECONDS
from network.world import ENGINEER, Site, World, research
from qemu import Unavailable

_NEEDED = {
    "charon-systemd": "charon-systemd",
    "swanctl": "strongswan-swanctl",
    "/usr/lib/frr/bgpd": "frr",
    "openvpn": "openvpn",
    "dnsmasq": "dnsmasq-base",
    "nft": "nftables",
    "ping": "iputils-ping",
    "iperf3": "iperf3",
    "socat": "socat",
    "tcpdump": "tcpdump",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TEST_SECONDS, func_only=True))


def _check_packages() -> None:
    """Before anything waits for a tunnel: that the daemons are here, and charon has its algorithms."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if missing := [package for tool, package in _NEEDED.items() if not shutil.which(tool, path=path)]:
        pytest.skip(f"the lab needs these packages: {', '.join(missing)}")
    if problem := algorithms.problem(algorithms.offered()):
        pytest.fail(problem, pytrace=False)


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    _check_packages()
    try:
        made = made_machine()
    except Unavailable as fault:
        pytest.skip(str(fault))
    yield made
    made.close()


@pytest.fixture(scope="session")
def world(machine: Machine) -> Iterator[World]:
    """research.yaml's racks and two of its regions, healthy; a test leaves it so."""

    def change(text: str) -> str:
        for plain, more in (
            ("gateway: {addresses: [198.51.100.10], ", f"ssh_from: [{ENGINEER}/32], "),
            # Each region takes as many associations as the one before, and shows nothing that two do not.
            ("  eu-west-1:\n    kind: aws\n", "    vpn: []\n"),
        ):
            assert plain in text
            text = text.replace(plain, f"{plain}{more}")
        return text

    lab = Lab(machine)
    yield World.made(lab, research(change), regions=["us-west-2", "us-east-1"])
    lab.close()


@pytest.fixture
def site(world: World) -> Site:
    """The rack from which the tests of a file look at its world."""
    return world.sites["rack-a"]


@pytest.fixture(scope="module")
def lab(machine: Machine) -> Iterator[Lab]:
    """A lab for the tests of one file, which draw it in fixtures of their own."""
    made = Lab(machine)
    yield made
    made.close()


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Remote access on the least that carries it, for all tests of laptops that need no IPsec."""
    _check_packages()
    try:
        made = place_machine()
    except Unavailable as fault:
        pytest.skip(str(fault))
    yield draw(Lab(made), tmp_path_factory.mktemp("access"))
    made.close()
