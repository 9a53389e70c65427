"""A copy of the root module that may destroy what ``prevent_destroy`` guards.

Terraform has no switch for it: ``prevent_destroy`` must be a literal in the configuration. The rendered
files always have it, so that nobody who runs Terraform by hand is without it; a destruction that a person
asked for is planned, and applied, in this copy.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from infra.drive.build_folders import Folders

_BLOCK = re.compile(r'^resource\s+"([^"]+)"\s+"([^"]+)"')
_GUARD = re.compile(r"^(\s*prevent_destroy\s*=\s*)true(\s*)$", re.MULTILINE)


def guarded(root: Path) -> frozenset[tuple[str, str]]:
    """(type, name) of every resource block with ``prevent_destroy`` in the configuration at ``root``."""
    found = set()
    for path in root.rglob("*.tf"):
        block = None
        for line in path.read_text(encoding="utf-8").splitlines():
            block = _BLOCK.match(line) or block
            if block and _GUARD.match(line):
                found.add((block[1], block[2]))
    return frozenset(found)


def unprotect(folders: Folders) -> Path:
    """Make the copy again and return its folder.

    It stands beside the root module and shares its data folder, so the state, the modules and the providers
    are the very same.
    """
    copy = folders.unprotected
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folders.root, copy, symlinks=True)
    for path in copy.rglob("*.tf"):
        text = path.read_text(encoding="utf-8")
        lifted = _GUARD.sub(r"\1false\2", text)
        if lifted != text:
            path.write_text(lifted, encoding="utf-8")
    return copy


def discard(folders: Folders) -> None:
    """The copy has done its work."""
    shutil.rmtree(folders.unprotected, ignore_errors=True)
