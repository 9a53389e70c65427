"""What a machine needs to converge: cookbooks, its node object, roles, people, and its trees."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from infra.drive import ship
from infra.drive.cookbooks import below, mode_of
from infra.drive.folders import private
from infra.errors import DriveError, UsageError

COOKBOOKS: Final = Path("cookbooks")
"""Beside ``environments/``, in the project's own folder."""

REPOSITORY: Final = "/var/lib/causeway/chef"
"""Where it stands on a machine: a Chef repository."""

TREES: Final = {"site-gateway": "strongswan", "access-gateway": "openvpn"}
"""Role → the rendered tree that its cookbook brings in place."""

INPUTS: Final = "inputs"
"""The file that holds the digest of all the rest."""

Contents = Mapping[str, tuple[bytes, int]]
"""Path below the repository → contents and mode."""


@dataclass(frozen=True, slots=True)
class Payload:
    """What is brought to one machine."""

    node: str
    files: Contents

    @property
    def inputs(self) -> str:
        """A digest of it all, 64 hexadecimal digits: it changes when the machine has reason to converge."""
        digest = hashlib.sha256()
        for path, (data, mode) in sorted(self.files.items()):
            digest.update(f"{path}\0{mode:o}\0{len(data)}\0".encode())
            digest.update(data)
        return digest.hexdigest()


def shared(build: Path, cookbooks: Path = COOKBOOKS) -> dict[str, tuple[bytes, int]]:
    """The part that is the same for every machine of an environment."""
    if not cookbooks.is_dir():
        raise UsageError(f"there is no folder {cookbooks}/ here; run this in the project's own folder")
    rendered = {
        path.removeprefix("chef/"): data
        for path, data in below(build / "chef", "chef").items()
        if not path.startswith(("chef/nodes/", "chef/images/"))
    }
    if not rendered:
        raise DriveError(f"{build / 'chef'} is empty: nothing was rendered")
    files = {**below(cookbooks, "cookbooks"), **rendered}
    return {path: (data, mode_of(data)) for path, data in files.items()}


def payload(build: Path, node: str, site: str, roles: tuple[str, ...], common: Contents) -> Payload:
    """What one machine gets. ``DriveError`` where its node object or its tree was not rendered."""
    own = build / "chef" / "nodes" / f"{node}.json"
    if not own.is_file():
        raise DriveError(f"{own} is not there: {node} has no node object")
    files = {**common, f"nodes/{node}.json": (own.read_bytes(), 0o644)}
    for role in roles:
        target = TREES.get(role)
        if target is None:
            continue
        tree = ship.tree(build, f"{target}/{site}")
        if not tree:
            raise DriveError(f"{build / target / site} is empty: {node} can't be a {role} yet")
        files.update({f"trees/{target}/{path}": contents for path, contents in tree.items()})
    return Payload(node, files)


@contextmanager
def staged(build: Path, wanted: Payload) -> Iterator[Path]:
    """A folder that holds it, for rsync, for as long as it is needed; nobody else can look into it."""
    with TemporaryDirectory(prefix="converge-", dir=private(build / "state")) as folder:
        root = Path(folder)
        for path, (data, mode) in wanted.files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch(mode=0o600)
            target.write_bytes(data)
            target.chmod(mode)
        (root / INPUTS).write_text(f"{wanted.inputs}\n", encoding="ascii")
        yield root


def clear(build: Path) -> None:
    """Take away what a run that was killed has left staged."""
    for left in (build / "state").glob("converge-*"):
        shutil.rmtree(left, ignore_errors=True)
