"""What an apply remembers of the program that applied, for the `upgrade` of a later version."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from infra import __version__
from infra.commands.environment import Project
from infra.shipped_files import ROOT

FOLDERS: Final = ("cookbooks", "packer")
"""Folders of the package that machines and images are made of, and that are not rendered."""


def record(project: Project) -> dict[str, Any]:
    """Its version, what machines are made of, and the actions that the spec needs."""
    return {"causeway": __version__, "shipped": shipped(), "actions": actions(project)}


def newer(about: Mapping[str, Any]) -> str:
    """The version that applied last, if it is newer than this one; else empty."""
    was = str(about.get("causeway") or "")
    return was if _numbers(was) > _numbers(__version__) else ""


def _numbers(version: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", version)[:3]]


def actions(project: Project) -> dict[str, list[str]]:
    """Role (plan, apply, bake) → actions that the spec needs, sorted."""
    from infra.render import iam

    if not (present := iam.parts(project.cluster)):
        return {}
    found: dict[str, set[str]] = {}
    for name, statements in iam.render(iam.scope(project.cluster), present).items():
        role = re.split(r"[-.]", name)[0]
        for each in statements:
            allowed = each["Action"]
            found.setdefault(role, set()).update([allowed] if isinstance(allowed, str) else allowed)
    return {role: sorted(those) for role, those in sorted(found.items())}


def shipped() -> dict[str, str]:
    """Folder of the package → SHA-256 of all its files."""
    return {name: _digest(name) for name in FOLDERS}


def _digest(name: str) -> str:
    told = hashlib.sha256()
    for path in sorted((ROOT / name).rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            told.update(
                f"{path.relative_to(ROOT).as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest()
            )
    return told.hexdigest()
