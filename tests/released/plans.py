"""What Terraform would create from nothing: addresses of resources, and what can't change in place."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.lifecycle.project import REPOSITORY, Project
from infra.commands import session
from infra.commands.environment import find, load_project
from infra.drive import saved_plan

SPECS: Final = {
    "minimal": REPOSITORY / "environments/minimal.yaml",
    "research": REPOSITORY / "environments/research.yaml",
    "machines": REPOSITORY / "environments/machines.yaml",
    "transit": REPOSITORY / "tests/golden/transit/spec.yaml",
}
"""Those that a release keeps."""
FIXED: Final = (
    "availability_zone", "bgp_asn", "bucket", "cidr_block", "creation_token", "engine", "family",
    "identifier", "ip_address", "key", "name", "name_prefix", "path", "type",
)  # fmt: skip
"""Attributes by which AWS knows a resource: another value makes another resource."""

Resources = Mapping[str, Mapping[str, Any]]
"""Address → its fixed attributes."""

_MOVED = re.compile(r"moved\s*\{\s*from\s*=\s*(\S+)\s*to\s*=\s*(\S+)\s*\}")
_REMOVED = re.compile(r"removed\s*\{\s*from\s*=\s*(\S+)")
_INDEX = re.compile(r"\[[^\]]*\]")


def planned(folder: Path, name: str, spec: str, lock: str) -> tuple[Resources, list[str]]:
    """What a plan of this spec and lock creates, and the texts of the rendered Terraform files. Nothing where
    it has no AWS region."""
    project = Project(folder, name)
    project.spec_file.parent.mkdir(parents=True)
    project.spec_file.write_text(spec, encoding="utf-8")
    project.spec_file.with_suffix(".lock.yaml").write_text(lock, encoding="utf-8")
    try:
        project.invoke("plan")
        texts = [file.read_text(encoding="utf-8") for file in project.build.rglob("*.tf")]
        with contextlib.chdir(folder):
            loaded = load_project(replace(find(name), rehearsed=True), changeable=True)
            if not loaded.cluster.regions:
                return {}, texts
            job = session.job(loaded)
            shown = job.terraform().show(saved_plan.plan_file(job.folders))
    finally:
        project.run("local.down")
    rows = (row for row in shown["resource_changes"] if row["mode"] == "managed")
    found = {row["address"]: row["change"]["after"] for row in rows}
    fixed = {
        address: {key: after[key] for key in FIXED if isinstance(after.get(key), str | int)}
        for address, after in sorted(found.items())
    }
    return fixed, texts


def lost(before: Resources, now: Resources, texts: Iterable[str]) -> list[str]:
    """Addresses that a plan from nothing no longer has and that no block moves or removes, and resources that
    are others now, with what differs: ``aws_vpc.this: cidr_block``."""
    told = "\n".join(texts)
    moves = [(_bare(old), _bare(new)) for old, new in _MOVED.findall(told)]
    removed = [_bare(old) for old in _REMOVED.findall(told)]
    there = {_bare(address) for address in now}
    problems = []
    for address, attributes in before.items():
        if address in now:
            changed = [key for key, value in attributes.items() if now[address].get(key) != value]
            problems += [f"{address}: {key}" for key in changed]
        elif not any(_within(address, old) for old in removed):
            around = [(new, _within(address, old)) for old, new in moves]
            moved = {f"{place[0]}{new}{place[1]}" for new, place in around if place}
            if not moved & there:
                problems.append(address)
    return problems


def _bare(address: str) -> str:
    return _INDEX.sub("", address)


def _within(address: str, block: str) -> tuple[str, str] | None:
    """What is around a block's address in that of a resource: the modules above it, and what is in it."""
    found = re.search(rf"(?:^|(?<=\.)){re.escape(block)}(?=\.|$)", _bare(address))
    return None if found is None else (_bare(address)[: found.start()], _bare(address)[found.end() :])
