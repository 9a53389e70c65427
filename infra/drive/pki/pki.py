"""The PKI of an environment's laptops, as the commands use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from infra.drive import x509_builder
from infra.drive.pki import (
    authority,
    backup,
    chunks,
    easy_rsa,
    encryption,
    expiry,
    issuing,
    naming,
    records,
    requests,
)
from infra.drive.pki.expiry import Due
from infra.drive.pki.issuing import CLIENT_DAYS, SERVER_DAYS
from infra.drive.pki.problems import PkiError
from infra.drive.pki.records import Certificate, Revocation, Root
from infra.drive.pki.register import Archive, Register, check_clock
from infra.drive.pki.revocation import intermediate_crl
from infra.drive.secrets.store import Store
from infra.drive.x509_builder import Entry


class Pki:
    """The certificates of one environment, in its secrets store.

    Every method may raise ``PkiError``, or ``SecretsError`` if the store cannot be reached. Each change is
    one atomic step, so a crash leaves it done or not done; see ``infra.drive.pki.records``.
    """

    def __init__(self, store: Store, *, domain: str, clock: Callable[[], datetime]) -> None:
        """``domain``: the cluster's, ``research.internal``; all its servers have the common name
        ``vpn.<domain>``, so that one ``verify-x509-name`` matches them. ``clock``: returns the time, with
        a time zone."""
        self._store = store
        self._clock = clock
        self._archive = Archive(store)
        self._servers = naming.fitting(f"vpn.{domain}")

    def exists(self) -> bool:
        """Whether there is a PKI."""
        return self._archive.root() is not None

    def create(self, passphrase: str, name: str) -> None:
        """Create the root, whose key is encrypted with the passphrase, and the first intermediate.

        ``name`` is for people: ``research`` gives ``research VPN root``. Raises ``PkiError`` if there is a
        PKI.
        """
        self._refuse_second()
        encryption.check_passphrase(passphrase)
        now = self._now()
        key = x509_builder.root_key()
        certificate = x509_builder.root(
            key, naming.fitting(f"{name} VPN root"), now, authority.ROOT_DAYS, path=1
        )
        root = authority.new_root(certificate, key, passphrase, now)
        crl_name, crl = authority.new_root_crl(root, key, (), 1, now)
        authority.commit(self._store, root, {**authority.new_intermediate(root, key, now), crl_name: crl})

    def import_easy_rsa(self, folder: Path, its_passphrase: str, our_passphrase: str) -> None:
        """Import an easy-rsa PKI: ``folder`` contains its ``ca.crt`` and ``index.txt``.

        Its CA becomes our root, encrypted with ``our_passphrase``, and gets an intermediate; existing
        profiles continue to work. Its certificates become records, without their keys. ``its_passphrase`` is
        empty for a CA key created with ``nopass``.
        """
        self._refuse_second()
        encryption.check_passphrase(our_passphrase)
        now = self._now()
        found = easy_rsa.read(folder, its_passphrase, now)
        root = authority.new_root(found.authority, found.key, our_passphrase, now)
        crl_name, crl = authority.new_root_crl(root, found.key, found.revoked, found.crl_number + 1, now)
        pieces, value = chunks.pieces(crl_name, crl)
        parts = authority.new_intermediate(root, found.key, now) | pieces | {crl_name: value}
        for each in found.certificates:
            parts[records.certificate_name(root.id, each.serial_number)] = records.imported_text(each, now)
        authority.commit(self._store, root, parts)

    def client(self, user: str, device: str = "", days: int = CLIENT_DAYS) -> Certificate:
        """The user's certificate: a valid one that does not expire within 30 days, or a new one.

        ``device`` is empty for the user's first: ``ada``, ``ada@phone``. A certificate expires no later than
        the intermediate.
        """
        return self.clients([(user, device)], days)[0]

    def clients(self, holders: Iterable[tuple[str, str]], days: int = CLIENT_DAYS) -> tuple[Certificate, ...]:
        """``client`` for many (user, device) with few calls of the store, in the same order."""
        ordered = list(holders)
        wanted = {holder: naming.client(*holder, self._servers) for holder in ordered}
        issuing.check_days(days)
        register, now = self._for_change()
        having = {
            holder: issuing.lasting(
                (one for one in register.certificates if one.kind == "client" and one.name == common),
                now,
                days,
            )
            for holder, common in wanted.items()
        }
        fresh = {
            holder: issuing.issue_client(register, wanted[holder], *holder, days, now)
            for holder, one in having.items()
            if one is None
        }
        if fresh:
            self._store.add(dict(fresh.values()))
            register = self._register()
        return tuple(having[holder] or self._issued(register, fresh[holder][0]) for holder in ordered)

    def request(self, text: str, user: str, device: str = "", days: int = CLIENT_DAYS) -> Certificate:
        """A certificate for a signing request (PEM), whose key never leaves the user's machine. The same
        request gives the same certificate until it is about to expire.

        Raises ``PkiError`` for an invalid request, and for a key that belongs to another certificate or was
        revoked.
        """
        common = naming.client(user, device, self._servers)
        public = requests.public_key(text, common)
        issuing.check_days(days)
        register, now = self._for_change()
        same = [one for one in register.certificates if one.public == public]
        for one in same:
            if (one.kind, one.name) != ("client", common):
                raise PkiError(f"{common}: the signing request has {one.name}'s key; make another one")
            if one.revoked is not None:
                raise PkiError(f"{common}: the signing request has a key that was revoked; make another one")
        return issuing.lasting(same, now, days) or self._add(
            *issuing.issue_client(register, common, user, device, days, now, public=public)
        )

    def server(self, site: str, names: Sequence[str], days: int = SERVER_DAYS) -> Certificate:
        """The certificate of a site's server: a valid one for exactly these DNS names and addresses that
        does not expire within 30 days, or a new one. The servers' common name is always among its names."""
        issuing.check_days(days)
        names = naming.alternatives([self._servers, *names])
        register, now = self._for_change()
        mine = [
            one
            for one in register.certificates
            if (one.kind, one.site, one.name) == ("server", site, self._servers)
            and set(one.names) == set(names)
        ]
        return issuing.lasting(mine, now, days) or self._add(
            *issuing.issue_server(register, self._servers, site, names, days, now)
        )

    def renew(
        self,
        certificate: Certificate,
        *,
        days: int | None = None,
        revoke: bool = False,
        passphrase: str = "",
    ) -> Certificate:
        """The successor of a certificate, with a new key: an existing one if it does not expire within 30
        days, so that an interrupted renewal can be repeated. For a signing request, the successor has the
        same key.

        The old one remains valid until its expiry, or with ``revoke`` until the next revocation list.
        ``passphrase``: as in ``revoke``.
        """
        days = days or (CLIENT_DAYS if certificate.kind == "client" else SERVER_DAYS)
        issuing.check_days(days)
        register, now = self._for_change()
        old = register.find(certificate.serial)
        if old is None:
            raise PkiError(f"{self._store}: certificate {certificate.id} does not exist; list those that do")
        if revoke and old.requested:
            raise PkiError(
                f"{old.name}: its successor would have the same key, which is on the laptop; revoke it, and "
                "answer a signing request with another key"
            )
        successor = issuing.lasting(
            (one for one in register.certificates if one.replaces == old.serial), now, days
        )
        if successor is None and old.kind == "client":
            common = naming.client(old.user, old.device, self._servers)
            public = old.public if old.requested else None
            successor = self._add(
                *issuing.issue_client(
                    register, common, old.user, old.device, days, now, replaces=old.serial, public=public
                )
            )
        elif successor is None:
            names = naming.alternatives([self._servers, *(name for name in old.names if name != old.name)])
            successor = self._add(
                *issuing.issue_server(
                    register, self._servers, old.site, names, days, now, replaces=old.serial
                )
            )
        if revoke:
            self.revoke_each([old], reason="superseded", passphrase=passphrase)
        return successor

    def revoke(
        self, user: str, device: str | None = None, *, reason: str = "unspecified", passphrase: str = ""
    ) -> tuple[Certificate, ...]:
        """Revoke a user's certificates, or only those of one device (``""`` is the first).

        Returns those that were still valid. ``reason``: RFC 5280's, see ``x509_builder.REASONS``.
        ``passphrase``: the root's, needed only for imported certificates. Raises ``PkiError`` for a user who
        never had a certificate.
        """
        had = [
            one
            for one in self._register().certificates
            if one.kind == "client" and one.user == user and device in {None, one.device}
        ]
        if not had:
            holder = f"{user}@{device}" if device else user
            raise PkiError(f"{self._store}: {holder} never had a certificate; list those there are")
        return self.revoke_each(had, reason=reason, passphrase=passphrase)

    def revoke_each(
        self, certificates: Iterable[Certificate], *, reason: str = "unspecified", passphrase: str = ""
    ) -> tuple[Certificate, ...]:
        """Revoke certificates; returns them without those that had expired or were revoked before."""
        if reason not in x509_builder.REASONS:
            raise PkiError(
                f"{reason!r} is not a reason to revoke; use one of {', '.join(x509_builder.REASONS)}"
            )
        register, now = self._for_change()
        wanted = {one.serial for one in certificates}
        todo = [
            one
            for one in register.certificates
            if one.serial in wanted and one.revoked is None and one.not_after >= now
        ]
        imported = [one for one in todo if one.issuer == register.root.certificate.serial_number]
        if imported and not passphrase:
            whose = ", ".join(sorted(one.name for one in imported))
            raise PkiError(
                f"{whose}: issued by the imported root itself, so revoking needs the root's passphrase; "
                "nothing changed"
            )
        if imported:
            reasons = {one.serial: reason for one in imported}
            authority.revoke_by_root(self._store, self._archive, reasons, passphrase, now)
        fresh = {
            records.revocation_name(register.root.id, one.serial): records.revocation_text(
                Revocation(Entry(one.serial, now, reason), one.issuer)
            )
            for one in todo
            if one.issuer != register.root.certificate.serial_number
        }
        if fresh:
            self._store.add(fresh)  # an existing record of another engineer revokes it as well
        register, done = self._register(), {one.serial for one in todo}
        return tuple(one for one in register.certificates if one.serial in done)

    def crl(self) -> str:
        """The revocation lists of the root and of every intermediate that has not expired, as one PEM text
        for ``crl-verify``: OpenVPN needs one per CA in a chain. The same text until it must change."""
        register, now = self._for_change()
        lists = [
            intermediate_crl(each, register, now)
            for each in register.intermediates
            if each.certificate.not_valid_after_utc >= now
        ]
        return "".join(map(x509_builder.pem, [register.root_crl, *lists]))

    def certificates(self) -> tuple[Certificate, ...]:
        """All certificates ever issued, in order."""
        return self._register().certificates

    def authorities(self) -> str:
        """The root and every intermediate that has not expired, as one PEM text for ``ca``."""
        register, now = self._register(), self._now()
        issuers = [each.certificate for each in register.intermediates]
        lasting = [each for each in issuers if each.not_valid_after_utc >= now]
        return "".join(map(x509_builder.pem, [register.root.certificate, *lasting]))

    def tls_crypt_server_key(self) -> str:
        """The ``tls-crypt-v2`` key of servers, PEM. A secret."""
        return self._root().tls_crypt

    def renew_intermediate(self, passphrase: str) -> None:
        """Create a new intermediate, which issues from now on. Certificates of older ones remain valid."""
        register, now = self._for_change()
        key = authority.root_key(self._store, register.root, passphrase)
        self._store.add(authority.new_intermediate(register.root, key, now))

    def due(self) -> tuple[Due, ...]:
        """Certificates that expire soon, or have expired within the last 30 days, and have no successor; the
        earliest first.

        Revocation lists are not included, as ``crl`` renews them. See ``vpn.revocations`` for those on
        servers.
        """
        return expiry.due(self._register(), self._now())

    def backup(self, passphrase: str) -> bytes:
        """All records in one file, encrypted with the passphrase."""
        encryption.check_passphrase(passphrase)
        self._register()  # raises for damaged records, which must not go into a backup
        return backup.pack(self._store, passphrase)

    def restore(self, data: bytes, passphrase: str, *, replace: bool = False) -> None:
        """Restore a backup. Into a PKI with the same root, it only adds missing records, so that nothing
        issued or revoked since is lost. With ``replace``, a PKI with another root is replaced, and
        records that differ are overwritten."""
        backup.put_back(self._store, backup.unpack(data, passphrase), replace=replace)
        self._archive.forget()

    def _now(self) -> datetime:
        return self._clock().astimezone(UTC).replace(microsecond=0)

    def _root(self) -> Root:
        root = self._archive.root()
        if root is None:
            raise PkiError(f"{self._store}: no PKI yet; create one first")
        return root

    def _register(self) -> Register:
        register = self._archive.read()
        if register is None:
            raise PkiError(f"{self._store}: no PKI yet; create one first")
        return register

    def _for_change(self) -> tuple[Register, datetime]:
        register, now = self._register(), self._now()
        check_clock(register, now)
        return register, now

    def _refuse_second(self) -> None:
        if self.exists():
            raise PkiError(
                f"{self._store}: there is a PKI already, and profiles may depend on it; to start over, back "
                f"it up and then delete the secret {records.ROOT}"
            )

    def _add(self, name: str, text: str) -> Certificate:
        self._store.add({name: text})
        return self._issued(self._register(), name)

    def _issued(self, register: Register, name: str) -> Certificate:
        found = register.find(records.serial_of(name))
        if found is None:
            raise PkiError(f"{self._store}: somebody is changing the PKI at this moment; run this again")
        return found
