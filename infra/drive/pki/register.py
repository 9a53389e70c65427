"""Reads and validates all records of a PKI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from cryptography import x509

from infra.drive import x509_builder
from infra.drive.pki import chunks, records
from infra.drive.pki.problems import PkiError
from infra.drive.pki.records import Certificate, DamagedError, Intermediate, Revocation, Root
from infra.drive.secrets.store import Store

SKEW: Final = timedelta(minutes=5)
"""Tolerated difference between the clocks of two engineers."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Register:
    """The records of a PKI at the time of reading."""

    root: Root
    intermediates: tuple[Intermediate, ...]
    """The newest first."""
    certificates: tuple[Certificate, ...]
    """In the order of their issue."""
    revocations: tuple[Revocation, ...]
    """Revocations of certificates that the intermediates issued."""
    root_crl: x509.CertificateRevocationList

    def find(self, serial: int) -> Certificate | None:
        return next((each for each in self.certificates if each.serial == serial), None)

    def newest(self) -> tuple[datetime, str]:
        """Time and name of the most recent record."""
        id = self.root.id  # noqa: A001 - the record's own word
        times = [(self.root.made, records.ROOT)]
        times += [
            (each.made, records.intermediate_name(id, each.certificate.serial_number))
            for each in self.intermediates
        ]
        times += [(each.issued, records.certificate_name(id, each.serial)) for each in self.certificates]
        times += [
            (each.entry.when, records.revocation_name(id, each.entry.serial)) for each in self.revocations
        ]
        times += [
            (entry.when, records.root_crl_name(id, x509_builder.number_of(self.root_crl)))
            for entry in x509_builder.entries_of(self.root_crl)
        ]
        return max(times)


class Archive:
    """Reads a store's PKI. Records are cached, as they never change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, str] = {}

    def root(self) -> Root | None:
        """The root; None if there is no PKI."""
        text = self._store.get(records.ROOT)
        return None if text is None else self._told(records.ROOT, lambda: records.root_of(text))

    def read(self) -> Register | None:
        """All records; None if there is no PKI. Raises ``PkiError``, naming the record, if one is damaged."""
        root = self.root()
        if root is None:
            return None
        texts = self._texts(f"pki/{root.id}/")

        def each(folder: str, read: Callable[[str, str], _T]) -> list[_T]:
            prefix = f"pki/{root.id}/{folder}/"
            return [
                self._told(name, lambda name=name, text=text: read(text, name.removeprefix(prefix)))  # type: ignore[misc]
                for name, text in texts.items()
                if name.startswith(prefix)
            ]

        lists = [name for name in texts if name.startswith(f"pki/{root.id}/root-crl/")]
        if not lists:
            raise self._damaged(records.ROOT, "its revocation list is gone")
        latest = max(lists)
        crl = self._told(latest, lambda: self._root_crl(latest, texts[latest], root))
        intermediates = each(
            "intermediates", lambda text, serial: records.intermediate_of(text, serial, root)
        )
        revocations = each("revocations", records.revocation_of)
        revoked = {entry.serial: entry for entry in x509_builder.entries_of(crl)}
        revoked |= {one.entry.serial: one.entry for one in revocations}
        issuers = {one.certificate.subject.public_bytes(): one for one in intermediates}
        if not intermediates:
            raise self._damaged(records.ROOT, "its intermediates are gone")
        certificates = each(
            "certificates",
            lambda text, serial: records.certificate_of(text, serial, root, issuers, revoked),
        )
        successors = {one.replaces: one.serial for one in certificates if one.replaces is not None}
        return Register(
            root,
            tuple(sorted(intermediates, key=lambda one: one.certificate.not_valid_before_utc, reverse=True)),
            tuple(
                replace(one, replaced_by=successors.get(one.serial))
                for one in sorted(certificates, key=lambda one: (one.issued, one.serial))
            ),
            tuple(revocations),
            crl,
        )

    def forget(self) -> None:
        """Clear the cache."""
        self._known.clear()

    def _texts(self, prefix: str) -> dict[str, str]:
        names = [name for name in self._store.names(prefix) if not chunks.is_part(name)]
        self._known |= self._store.read([name for name in names if name not in self._known])
        return {name: self._known[name] for name in names if name in self._known}

    def _root_crl(self, name: str, value: str, root: Root) -> x509.CertificateRevocationList:
        text = chunks.whole(name, value, self._store)
        if text is None:
            raise DamagedError("a part of it is missing")
        return records.root_crl_of(text, name.rpartition("/")[2], root)

    def _told(self, name: str, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except DamagedError as problem:
            raise self._damaged(name, str(problem)) from None

    def _damaged(self, name: str, what: str) -> PkiError:
        return PkiError(
            f"{self._store}: the record {name} is damaged: {what}; put it back from a backup of the PKI with "
            "replace"
        )


def check_clock(register: Register, now: datetime) -> None:
    """Raise ``PkiError`` if this computer's clock is behind the latest record."""
    newest, name = register.newest()
    if newest > now + SKEW:
        raise PkiError(
            f"this machine's clock says {now:%Y-%m-%d %H:%M:%S} UTC, but the record {name} is of "
            f"{newest:%Y-%m-%d %H:%M:%S} UTC; set the clock right (timedatectl set-ntp true). If it was the "
            "clock of another machine that was wrong, delete that record from the store once you are sure "
            "that nobody uses what it holds"
        )
