"""What a machine needs to converge: cookbooks, its node object, roles, people, and its trees."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from infra.drive import build_folders, push_tree, secret_files
from infra.drive.cookbooks import below, mode_of
from infra.errors import DriveError
from infra.shipped_files import ROOT

COOKBOOKS: Final = ROOT / "cookbooks"

REPOSITORY: Final = "/var/lib/causeway/chef"
"""Its path on a machine: a Chef repository."""

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
    keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Tree → paths among ``files`` of its keys and certificates; without a tree whose keys are not here."""

    @property
    def inputs(self) -> str:
        """Digests of it all: one changes when the machine has reason to converge.

        Of what is rendered, 64 hexadecimal digits; then `` strongswan=…`` for each tree's keys. Who has not
        fetched those can still compare the rest (``differs``).
        """
        kept = frozenset().union(*self.keys.values())
        parts = [_digest({path: each for path, each in self.files.items() if path not in kept})]
        for tree, paths in sorted(self.keys.items()):
            parts.append(f"{tree}={_digest({path: self.files[path] for path in paths})}")
        return " ".join(parts)

    def brings(self, tree: str) -> bool:
        """Whether a tree of ``TREES`` is part of it."""
        return any(path.startswith(f"trees/{tree}/") for path in self.files)


def differs(sent: str, wanted: str) -> bool:
    """Whether a machine was sent (``Payload.inputs``) anything else than it would be sent now, as far as what
    is here can tell."""
    had = _parts(sent)
    return any(had.get(part) != digest for part, digest in _parts(wanted).items())


def keyless(sent: str, wanted: str) -> tuple[str, ...]:
    """The trees whose keys a machine was sent, and that are not here to compare."""
    return tuple(sorted(_parts(sent).keys() - _parts(wanted).keys()))


def _parts(inputs: str) -> dict[str, str]:
    open_part, *kept = inputs.split() or [""]
    return {"": open_part, **{tree: digest for tree, _, digest in (each.partition("=") for each in kept)}}


def _digest(files: Contents) -> str:
    digest = hashlib.sha256()
    for path, (data, mode) in sorted(files.items()):
        digest.update(f"{path}\0{mode:o}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def shared(build: Path, cookbooks: Path = COOKBOOKS) -> dict[str, tuple[bytes, int]]:
    """The part that is the same for every machine of an environment."""
    rendered = {
        path.removeprefix("chef/"): data
        for path, data in below(build / "chef", "chef").items()
        if not path.startswith(("chef/nodes/", "chef/images/"))
    }
    if not rendered:
        raise DriveError(f"{build / 'chef'} is empty: nothing was rendered")
    files = {**below(cookbooks, "cookbooks"), **rendered}
    return {path: (data, mode_of(data)) for path, data in files.items()}


def payload(
    build: Path, node: str, site: str, roles: tuple[str, ...], common: Contents, gateway: str = ""
) -> Payload:
    """What one machine gets; ``gateway``: the tree of a gateway, if its name is not the site's.

    ``DriveError`` where its node object or its tree was not rendered.
    """
    own = build / "chef" / "nodes" / f"{node}.json"
    if not own.is_file():
        raise DriveError(f"{own} is not there: {node} has no node object")
    files = {**common, f"nodes/{node}.json": (own.read_bytes(), 0o644)}
    keys = {}
    for role in roles:
        target = TREES.get(role)
        if target is None:
            continue
        folder = f"{target}/{gateway if gateway and role == 'site-gateway' else site}"
        tree = push_tree.tree(build, folder)
        if not tree:
            raise DriveError(f"{build / folder} is empty: {node} can't be a {role} yet")
        files.update({f"trees/{target}/{path}": contents for path, contents in tree.items()})
        if kept := secret_files.below(build, folder) & tree.keys():
            keys[target] = frozenset(f"trees/{target}/{path}" for path in kept)
    return Payload(node, files, keys)


@contextmanager
def staged(build: Path, wanted: Payload) -> Iterator[Path]:
    """A folder that holds it, for rsync, for as long as it is needed; nobody else can look into it."""
    with TemporaryDirectory(prefix="converge-", dir=build_folders.private(build / "state")) as folder:
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
