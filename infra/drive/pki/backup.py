"""Backs up a PKI to an encrypted file, and restores it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from infra.drive.pki import authority, encryption, records
from infra.drive.pki.problems import PkiError
from infra.drive.secrets.store import Store
from infra.errors import newer

_PURPOSE: Final = "backup"
_PREFIX: Final = "pki/"


def pack(store: Store, passphrase: str) -> bytes:
    """All records of a store's PKI, encrypted; JSON with a final newline."""
    root = store.get(records.ROOT)
    id = records.root_of(root).id if root else ""  # noqa: A001 - the record's own word
    names = [records.ROOT, *store.names(f"{_PREFIX}{id}/")]
    values = dict(store.read(names))
    content = encryption.seal(json.dumps(values).encode(), passphrase, _PURPOSE)
    return (json.dumps({"causeway pki backup": 1, **content}, indent=1) + "\n").encode()


def unpack(data: bytes, passphrase: str) -> dict[str, str]:
    """Name → value of a backup's records. Raises ``PkiError`` for other data or a wrong passphrase."""
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    match document:
        case {"causeway pki backup": 1}:
            pass
        case {"causeway pki backup": int(version)}:
            raise PkiError(f"the backup: {newer(version, 1)}")
        case _:
            raise PkiError("the backup: not a backup of a PKI; give the file that the backup wrote")
    values = json.loads(encryption.unseal(document, passphrase, _PURPOSE, "the backup"))
    return {str(name): str(value) for name, value in values.items()}


def put_back(store: Store, values: Mapping[str, str], *, replace: bool) -> None:
    """Write a backup's records to a store, the root last, which makes them valid."""
    try:
        root = records.root_of(values[records.ROOT])
    except (KeyError, records.DamagedError):
        raise PkiError("the backup: holds no root; take another") from None
    prefix = f"{_PREFIX}{root.id}/"
    below = {name: value for name, value in values.items() if name.startswith(prefix)}
    present = store.read(values)
    differing = sorted(name for name, value in present.items() if values[name] != value)
    if differing and not replace:
        raise PkiError(
            f"{store}: {differing[0]} is there already and differs from the backup's; nothing changed. To "
            "have the backup's in its place, restore with replace"
        )
    store.add(below)
    for name in differing:
        if name != records.ROOT:
            store.put(name, values[name])
    if replace:
        store.put(records.ROOT, values[records.ROOT])
    elif (
        not store.add({records.ROOT: values[records.ROOT]})
        and store.get(records.ROOT) != values[records.ROOT]
    ):
        raise PkiError(f"{store}: somebody else has just made a PKI here; nothing counts of the backup")
    authority.sweep(store, root)
