"""What can go wrong with the PKI."""

from __future__ import annotations

from infra.errors import DriveError


class PkiError(DriveError):
    """The PKI can't do what was asked. Names the record and what to do; never holds a key or a passphrase."""
