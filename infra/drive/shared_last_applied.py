"""The ledger beside a state in S3: the last apply, shared by all clones that use that state.

``infra.drive.last_applied`` keeps it in the build folder, where commands read it without calling AWS; with a
local state that is the only copy. With a state in S3, the object ``<key>.ledger.json.gz`` has the same
contents; it is fetched before each plan and written after each apply. The serials decide which copy is
newer.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any

from infra.drive import last_applied
from infra.drive.build_folders import Folders
from infra.drive.state_backends import ChangedError, Place, S3Place
from infra.errors import DriveError, newer

_ATTEMPTS = 3
_VERSION = 1


def fetch(folders: Folders, place: Place) -> None:
    """Fetch the ledger beside the state, unless the local one is newer. Raises `DriveError` for a damaged
    one."""
    if not isinstance(place, S3Place):
        return
    stored = place.get(_key(place))
    if stored is None:
        return
    about, files = _unpacked(stored.data, place)
    here = last_applied.about(folders)
    if here == about or (here is not None and _later(here, about)):
        return
    if about.get("destroyed"):
        last_applied.forget(folders)
    else:
        last_applied.remember(folders, files, about)


def publish(folders: Folders, place: Place) -> None:
    """Store the local ledger beside the state, unless the stored one is newer."""
    if not isinstance(place, S3Place):
        return
    here = last_applied.recall(folders)
    if here is not None:
        _store(place, here.about, here.files)


def forget(place: Place, state: Mapping[str, Any]) -> None:
    """Record that nothing is applied any more, so that other clones discard their copies. ``state``: its
    lineage and serial."""
    if isinstance(place, S3Place):
        _store(place, {"destroyed": True, "state": state}, {})


def _store(place: S3Place, about: Mapping[str, Any], files: Mapping[str, str]) -> None:
    data = gzip.compress(json.dumps({"version": _VERSION, "about": about, "files": files}).encode(), mtime=0)
    for attempt in range(_ATTEMPTS):
        stored = place.get(_key(place))
        if stored is not None:
            there, _ = _unpacked(stored.data, place)
            if stored.data == data or _later(there, about):
                return
        try:
            place.put(_key(place), data, stored)
        except ChangedError:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


def _key(place: S3Place) -> str:
    return f"{place.key}.ledger.json.gz"


def _unpacked(data: bytes, place: S3Place) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    try:
        values = json.loads(gzip.decompress(data))
        if values["version"] > _VERSION:
            raise DriveError(f"s3://{place.bucket}/{_key(place)}: {newer(values['version'], _VERSION)}")
        return dict(values["about"]), dict(values["files"])
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        raise DriveError(
            f"s3://{place.bucket}/{_key(place)} is damaged; restore an earlier version of it. Without it, "
            "what cannot change on a live cluster is not refused"
        ) from None


def _later(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether ``one`` is of a later version of the state. False for another lineage, which is another
    state."""
    mine, yours = one.get("state") or {}, other.get("state") or {}
    return mine.get("lineage") == yours.get("lineage") and mine.get("serial", -1) > yours.get("serial", -1)
