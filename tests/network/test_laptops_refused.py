"""Who does not come in, and who is sent away."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs
from network.laptops import Access, Laptop, Session, new_pki, store_key, with_vpn
from network.laptops_place import MASTER, POD, Place
from network.node import wait_for

from infra.drive.pki import Certificate
from infra.model.remote import Vpn

_PASSPHRASE = "another battery staple"


@contextmanager
def _trying(laptop: Laptop, text: str) -> Iterator[Session]:
    """A laptop that tries to come in, and must not have by the end of the `with`."""
    session = laptop.start(text)
    try:
        yield session
        assert session.times == 0
    finally:
        session.end()


def _others(access: Access, place: Place) -> Certificate:
    """ada's certificate of somebody else's PKI of the same names."""
    folder = access.build / f"others-{secrets.token_hex(4)}"
    pki = new_pki(access.cluster, folder, lambda: datetime.now(UTC), store_key())
    pki.create(_PASSPHRASE, access.cluster.name)
    return pki.client("ada")


def test_a_revoked_certificate_is_refused(place: Place) -> None:
    access, server = place.access, place.region
    text = access.profile("alan", "stolen", at=server.site)
    access.pki.revoke("alan", "stolen")
    server.ship()
    mark = len(server.log())
    with _trying(place.laptop, text):
        server.wait_log("VERIFY ERROR", "certificate revoked", "alan@stolen", after=mark)
    assert server.session("alan@stolen") is None


def test_a_connected_user_is_cut_and_another_device_comes_back(place: Place) -> None:
    access, server = place.access, place.region
    phone, own = (access.profile("ada", device, at=server.site) for device in ("phone", ""))
    with place.laptop.connected(phone) as lost, place.desk.connected(own) as kept:
        assert place.laptop.asks(MASTER)
        # What `invoke vpn.revoke --user ada --device phone` does; by mistake, her own is cut too.
        access.pki.revoke("ada", "phone", reason="keyCompromise")
        assert server.ship() == ("/etc/openvpn/server/crl.pem",)
        server.tool("cut", "ada", "ada@phone")
        assert place.laptop.asks(MASTER) == ""
        server.wait_log("certificate revoked", "ada@phone", seconds=60)
        wait_for(lambda: server.session("ada@phone") is None, "end of the session", 60, [server.node])
        kept.wait(60, times=2)
        assert place.desk.asks(MASTER) == "10.2.48.16"
        assert place.laptop.asks(MASTER) == ""
        assert lost.times == 1


def test_an_expired_certificate_is_refused(place: Place) -> None:
    access, server = place.access, place.region
    with _trying(place.laptop, access.profile("ada", at=server.site, certificate=access.expired)):
        server.wait_log("VERIFY ERROR", "certificate has expired", "ada@old")


def test_a_certificate_of_tomorrow_is_refused(place: Place) -> None:
    access, server = place.access, place.region
    folder = (
        access.build / f"tomorrow-{secrets.token_hex(4)}"
    )  # of the same authority, whose clock goes ahead
    shutil.copytree(access.build / "store", folder)
    pki = new_pki(access.cluster, folder, lambda: datetime.now(UTC) + timedelta(days=1), access.key)
    with _trying(place.laptop, access.profile("ada", at=server.site, certificate=pki.client("ada", "early"))):
        server.wait_log("VERIFY ERROR", "certificate is not yet valid", "ada@early")


def test_a_certificate_of_another_authority_is_refused(place: Place) -> None:
    access, server = place.access, place.region
    own, other = access.pki.client("ada"), _others(access, place)
    certificate = replace(other, tls_crypt=own.tls_crypt)
    with _trying(place.laptop, access.profile("ada", at=server.site, certificate=certificate)):
        server.wait_log("VERIFY ERROR", "unable to get local issuer certificate")


def test_a_servers_certificate_is_no_laptops(place: Place) -> None:
    access, server = place.access, place.region
    own, other = access.pki.client("ada"), access.pki.server("rack-a", ["somewhere.example"])
    certificate = replace(own, key=other.key, chain=other.chain)
    with _trying(place.laptop, access.profile("ada", at=server.site, certificate=certificate)):
        server.wait_log("VERIFY ERROR", "unsuitable certificate purpose")


@pytest.mark.parametrize("which", ["none", "of another server"])
def test_without_the_outer_key_there_is_no_answer(place: Place, which: str) -> None:
    access, server = place.access, place.region
    text = access.profile("ada", at=server.site)
    if which == "none":
        text = re.sub(r"<tls-crypt-v2>.*</tls-crypt-v2>\n", "", text, flags=re.DOTALL)
    else:
        own = access.pki.client("ada")
        certificate = replace(own, tls_crypt=_others(access, place).tls_crypt)
        text = access.profile("ada", at=server.site, certificate=certificate)
    seen = place.laptop.node.start("tcpdump", "-n", "-l", "-i", "eth0", "udp port 1194", name="wire")
    wait_for(lambda: "listening" in seen.log(), "tcpdump", nodes=[place.laptop.node])
    with _trying(place.laptop, text):
        asked = " > 192.0.2.16.1194"
        wait_for(lambda: seen.log().count(asked) > 1, "two tries", nodes=[place.laptop.node])
        assert " IP 192.0.2.16.1194" not in seen.log()
    seen.stop()


def test_an_expired_list_refuses_everybody_until_there_is_a_new_one(place: Place) -> None:
    access, server = place.access, place.region
    text, fresh = access.profile("ada", at=server.site), access.pki.crl()
    # OpenVPN goes by a list's size and time to see whether it is another: these two differ in time alone.
    longest = max(len(fresh), len(access.expired_crl))
    server.ship(crl=access.expired_crl.ljust(longest, "\n"))
    server.restart("udp")
    try:
        with _trying(place.laptop, text):
            server.wait_log("VERIFY ERROR", "CRL has expired")
        assert server.ship(crl=fresh.ljust(longest, "\n")) == ("/etc/openvpn/server/crl.pem",)
        # The new one is taken up by the same process.
        with place.laptop.connected(text):
            assert place.laptop.asks(POD)
    finally:
        server.ship()
    assert server.log().count("Initialization Sequence Completed") == 1


def test_who_is_no_longer_in_the_spec_is_out(place: Place) -> None:
    access, server = place.access, place.region

    def without_alan(vpn: Vpn) -> Vpn:
        return structs.replace(vpn, users=tuple(user for user in vpn.users if user.login != "alan"))

    with place.desk.connected(access.profile("alan", "desk", at=server.site)) as desk:
        assert place.desk.asks(POD)
        mark = len(server.log())
        try:
            server.ship(with_vpn(access.cluster, without_alan))
            assert place.desk.asks(POD) == ""
            with _trying(place.laptop, access.profile("alan", at=server.site)) as refused:
                server.wait_log("the rules know no alan", after=mark)
                place.laptop.node.wait_for(lambda: "AUTH_FAILED" in refused.log(), "a word to the laptop")
            assert server.session("alan") is None
        finally:
            server.ship()
        assert desk.times == 1
    with place.desk.connected(access.profile("alan", at=server.site)):
        assert place.desk.asks(POD)


def test_another_server_is_not_believed(place: Place) -> None:
    """Whoever answers in our servers' place with a certificate of our authority, a user's, is no server."""
    text = place.access.profile("ada", at="us-west-2")
    wrong = text.replace("verify-x509-name vpn.research", "verify-x509-name other")
    assert wrong != text
    with _trying(place.laptop, wrong) as session:
        place.laptop.node.wait_for(lambda: "VERIFY X509NAME ERROR" in session.log(), "doubts")
