"""The error of the PKI."""

from __future__ import annotations

from infra.errors import DriveError


class PkiError(DriveError):
    """The PKI cannot do what was requested. Names the record and the fix; never contains a key or a
    passphrase."""
