"""Whatever is done in whatever order: the records, the lists and OpenSSL's rules agree."""

from __future__ import annotations

from datetime import datetime, timedelta

from cryptography import x509
from drive.pki.pki_lab import PASSPHRASE, Clock, Memory, crls, revoked_serials
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from infra.drive.pki import Certificate, Pki
from infra.drive.pki.issuing import SOON

USERS = st.sampled_from(["ada", "grace", "linus"])
DEVICES = st.sampled_from(["", "phone"])


class Life(RuleBasedStateMachine):
    """A PKI, and what we remember of it ourselves."""

    @initialize()
    def begin(self) -> None:
        self.clock, self.store = Clock(), Memory()
        self.pki = Pki(self.store, domain="lab.internal", clock=self.clock)
        self.pki.create(PASSPHRASE, "lab")
        self.revoked: dict[int, datetime] = {}
        self.issued: dict[int, Certificate] = {}
        self.numbers: dict[bytes, tuple[int, bytes]] = {}

    def remember(self, one: Certificate) -> None:
        assert one.valid(self.clock.now)
        assert one.serial not in self.revoked
        self.issued.setdefault(one.serial, one)
        self.revoked |= {
            each.serial: self.clock.now
            for each in self.pki.certificates()
            if each.revoked and each.serial not in self.revoked and each.reason == "superseded"
        }

    @rule(user=USERS, device=DEVICES, days=st.sampled_from([20, 90, 365, 825]))
    def issue(self, user: str, device: str, days: int) -> None:
        one = self.pki.client(user, device, days=days)
        assert (one.user, one.device) == (user, device)
        self.remember(one)
        assert self.pki.client(user, device, days=days) == one

    @rule(site=st.sampled_from(["a", "b"]), name=st.sampled_from(["x.example.org", "203.0.113.7"]))
    def serve(self, site: str, name: str) -> None:
        one = self.pki.server(site, [name])
        assert set(one.names) == {"vpn.lab.internal", name}
        self.remember(one)

    @precondition(lambda self: self.issued)
    @rule(data=st.data(), revoke=st.booleans())
    def renew(self, data: st.DataObject, revoke: bool) -> None:
        known = sorted(self.issued.values(), key=lambda each: (each.issued, each.name))
        old = data.draw(st.sampled_from(known))
        self.remember(self.pki.renew(old, revoke=revoke))

    @rule(user=USERS, device=st.one_of(st.none(), DEVICES))
    def revoke(self, user: str, device: str | None) -> None:
        his = [one for one in self.issued.values() if one.user == user and device in {None, one.device}]
        if his:
            now = self.clock.now
            alive = {one.serial for one in his if one.serial not in self.revoked and one.not_after >= now}
            gone = self.pki.revoke(user, device, reason="keyCompromise")
            assert {one.serial for one in gone} == alive
            self.revoked |= dict.fromkeys(alive, self.clock.now)

    @rule(days=st.sampled_from([0.01, 1, 29, 61, 200]))
    def wait(self, days: float) -> None:
        self.clock.turn(days=days)
        root = x509.load_pem_x509_certificate(self.pki.authorities().encode())
        if root.not_valid_after_utc - self.clock.now < timedelta(days=400):
            self.begin()

    @precondition(lambda self: self.ends_soon())
    @rule()
    def renew_intermediate(self) -> None:
        self.pki.renew_intermediate(PASSPHRASE)

    def ends_soon(self) -> bool:
        return any(each.kind == "intermediate" for each in self.pki.due())

    @invariant()
    def an_intermediate_lasts(self) -> None:
        newest = self.pki._register().intermediates[0].certificate
        if newest.not_valid_after_utc - self.clock.now <= SOON + timedelta(days=200):
            self.renew_intermediate()

    @invariant()
    def all_agree(self) -> None:
        records = {one.serial: one for one in self.pki.certificates()}
        assert set(records) == set(self.issued)
        assert {serial: one.revoked for serial, one in records.items() if one.revoked} == self.revoked
        crl = self.pki.crl()
        assert self.pki.crl() == crl
        listed = revoked_serials(crl)
        assert listed <= set(self.revoked)
        for serial in set(self.revoked) - listed:
            assert records[serial].not_after < self.clock.now
        for each in crls(crl):
            assert each.next_update_utc is not None
            assert each.last_update_utc <= self.clock.now - timedelta(minutes=5)
            assert each.next_update_utc - self.clock.now >= timedelta(days=29)
            issuer = each.issuer.public_bytes()
            number = each.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
            old, fingerprint = self.numbers.get(issuer, (0, b""))
            same = each.signature == fingerprint
            assert number == old if same else number > old
            self.numbers[issuer] = (number, each.signature)
        told = {each.id for each in self.pki.due()}
        for one in records.values():
            replaced = any(
                each.serial != one.serial
                and (each.kind, each.name, each.site) == (one.kind, one.name, one.site)
                and each.revoked is None
                and each.not_after >= one.not_after
                for each in records.values()
            )
            soon = self.clock.now <= one.not_after <= self.clock.now + SOON
            if soon and one.revoked is None and not replaced:
                assert one.id in told


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
