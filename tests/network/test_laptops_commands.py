"""`invoke vpn.push` and `vpn.revoke` as a person runs them, over real SSH, on servers with laptops on them.

Two of the servers are those that all tests of laptops have. The third one begins as a machine that has the
packages and nothing else: the first push makes a VPN server of it. In place of systemd, which can't be a
node's first process, it has `systemctl.py`: that starts the real daemons as their units say.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from network.engineer import Engineer, ssh_missing
from network.laptops import PASSPHRASE, Laptop
from network.laptops_place import MASTER, POD, RACK, REGION, WORLD, Place, specs
from network.node import Node, wait_for

_FRESH, _ADDRESS, _INSIDE = "eu-west-1", "192.0.2.17", "10.1.48.17"
_PORT = 2222
"""Of OpenSSH: port 22 tells who asks."""


@dataclass
class Desk:
    """An engineer's, with the machine that no push has seen yet, and one more laptop at home."""

    engineer: Engineer
    fresh: Node
    phone: Laptop

    def session(self, name: str) -> dict[str, object] | None:
        """Of a laptop on the fresh server."""
        told = json.loads(self.fresh.check("/usr/local/sbin/remote-access", "status"))
        return next((each for each in told if each["name"] == name), None)

    def log(self) -> str:
        """Of the fresh server's UDP."""
        return self.fresh.read("/var/log/units/openvpn-server@udp.service.log")

    def profile(self, user: str, device: str = "", site: str = _FRESH) -> str:
        """As `vpn.profile` writes it, with one server alone, to save the time of tries."""
        told = self.engineer.asked("vpn.profile", "--user", user, *(["--device", device] if device else []))
        text = (self.engineer.folder / told["file"]).read_text()
        lines = text.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("remote ") or site in line)


@pytest.fixture(scope="module")
def desk(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    if package := ssh_missing():
        pytest.skip(f"needs the package {package}")
    if shutil.which("systemctl") is None:
        pytest.skip("needs the package systemd")
    access, folder = place.access, tmp_path_factory.mktemp("desk")
    engineer = Engineer.made(
        folder,
        "research",
        specs(),
        access.outputs,
        {"CAUSEWAY_SECRETS_KEY": access.key, "CAUSEWAY_PKI_PASSPHRASE": PASSPHRASE},
    )
    (folder / ".secrets").symlink_to(access.build / "store")
    with place.bare_server(_FRESH, public=_ADDRESS, address=_INSIDE, router="10.1.255.1") as fresh:
        for site, node, address in (
            (REGION, place.region.node, "10.2.48.16"),
            (RACK, place.rack.node, "10.200.0.2"),
            (_FRESH, fresh, _INSIDE),
        ):
            host = access.server(site).fqdn
            engineer.reaches(host, node, by=place.inside, address=address, port=_PORT)
        phone = Laptop.behind(place.home, "phone", "192.168.178.30/24", "192.168.178.1", WORLD)
        yield Desk(engineer, fresh, phone)
        engineer.close()
        place.lab.remove(phone.node)


def test_a_push_makes_a_server_of_a_machine(place: Place, desk: Desk) -> None:
    (told,) = desk.engineer.asked("vpn.push", "--site", _FRESH)
    assert (told["site"], told["error"]) == (_FRESH, "")
    assert {"/etc/openvpn/server/udp.conf", "/etc/openvpn/server/server.key"} <= set(told["changed"])
    wanted = "/etc/systemd/system/multi-user.target.wants/openvpn-server@{}.service"
    assert all(desk.fresh.run("test", "-L", wanted.format(each)).ok for each in ("udp", "tcp"))
    with place.laptop.connected(desk.profile("ada", "desk")) as ada:
        assert ada.host == f"{_ADDRESS}:1194"
        assert desk.session("ada@desk") is not None
        assert place.laptop.asks(MASTER) == _INSIDE
        assert place.laptop.resolves("titan-a01") == "10.200.0.11"


def test_a_second_push_changes_nothing_and_cuts_nobody(place: Place, desk: Desk) -> None:
    sites = [word for site in (REGION, _FRESH) for word in ("--site", site)]
    desk.engineer.done("vpn.push", *sites)
    with place.laptop.connected(desk.profile("alan", "second")) as alan:
        before = desk.session("alan@second")
        told = desk.engineer.asked("vpn.push", *sites)
        assert {each["site"]: (each["changed"], each["error"]) for each in told} == {
            site: ([], "") for site in (REGION, _FRESH)
        }
        after = desk.session("alan@second")
        assert before is not None
        assert after is not None
        assert after["since"] == before["since"]
        assert alan.times == 1
        assert place.laptop.asks(POD)
        status = json.loads(desk.engineer.invoke("vpn.status", "--json").stdout)
        listed = {
            each["device"]: (each["listener"], each["from"], each["address"]) for each in status["devices"]
        }
        assert listed["alan@second"] == ("udp", after["from"], after["address"])


def test_another_group_is_pushed_to_who_is_connected(place: Place, desk: Desk) -> None:
    researcher, engineer = (f"uid: 10002, groups: [{group}]" for group in ("researchers", "engineers"))
    with place.laptop.connected(desk.profile("alan", "moved")) as alan:
        before = desk.session("alan@moved")
        assert place.laptop.asks(MASTER) == ""
        desk.engineer.change(researcher, engineer)
        try:
            (told,) = desk.engineer.asked("vpn.push", "--site", _FRESH)
            assert told["changed"] == ["/etc/nftables/remote-access.nft"]
            assert place.laptop.asks(MASTER) == _INSIDE
            pings = place.laptop.node.pinging(MASTER)
            wait_for(lambda: " bytes from " in pings.process.log(), "an answer", nodes=[place.laptop.node])
        finally:
            desk.engineer.change(engineer, researcher)
            desk.engineer.done("vpn.push", "--site", _FRESH)
        # A right that is taken away ends what it began.
        wait_for(lambda: "Packet filtered" in pings.process.log(), "a refusal", nodes=[place.laptop.node])
        pings.process.stop()
        assert place.laptop.asks(MASTER) == ""
        assert place.laptop.asks(POD) == _INSIDE
        after = desk.session("alan@moved")
        assert before is not None
        assert after is not None
        assert (after["since"], after["from"]) == (before["since"], before["from"])
        assert alan.times == 1


def test_a_revoked_user_is_cut_on_every_server_and_others_stay(place: Place, desk: Desk) -> None:
    lost, elsewhere, kept = (
        desk.profile(user, device, site)
        for user, device, site in (("alan", "", _FRESH), ("alan", "phone", REGION), ("ada", "", _FRESH))
    )
    with (
        place.laptop.connected(lost) as alan,
        desk.phone.connected(elsewhere),
        place.desk.connected(kept) as ada,
    ):
        assert place.laptop.asks(POD) == _INSIDE
        told = desk.engineer.asked("vpn.revoke", "--user", "alan", "--reason", "keyCompromise")
        assert told["failed"] == {}
        assert len(told["revoked"]) >= 2
        # Nothing of theirs passes from this moment on, whether OpenVPN has told them or not.
        assert place.laptop.asks(POD) == ""
        assert desk.phone.asks(POD) == ""
        wait_for(lambda: not desk.session("alan"), "end of the session", 60, [desk.fresh])
        wait_for(lambda: not place.region.session("alan@phone"), "end of the other one", 60)
        wait_for(lambda: "certificate revoked" in desk.log(), "a refusal", 60)
        assert alan.times == 1
        assert place.desk.asks(MASTER) == _INSIDE
        assert ada.times == 1
