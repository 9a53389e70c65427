"""Formats Terraform's JSON diagnostics: the problem, its location, the fix.

Shapes: https://developer.hashicorp.com/terraform/internals/machine-readable-ui (``diagnostic``) and
https://developer.hashicorp.com/terraform/cli/commands/validate#json.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

_LOCK_FIELD = re.compile(r"^\s*(ID|Who|Operation|Created):\s*(.+?)\s*$", re.MULTILINE)
_PREVENTED = re.compile(r"Resource (\S+) has\s+lifecycle\.prevent_destroy")


_NAMED = 5
"""How many further addresses of one diagnostic are listed."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One diagnostic of Terraform."""

    severity: str
    """``error`` or ``warning``."""
    summary: str
    detail: str
    address: str
    """The address of the resource; empty if there is none."""
    file: str
    """Relative to Terraform's working folder; empty if there is none."""
    line: int
    """From 1; 0 if there is none."""

    @property
    def is_error(self) -> bool:
        return self.severity == "error"


def parse(event: Mapping[str, Any]) -> Diagnostic:
    """A diagnostic from the object of a ``diagnostic`` event."""
    span = event.get("range") or {}
    return Diagnostic(
        severity=str(event.get("severity", "error")),
        summary=str(event.get("summary", "")).strip(),
        detail=str(event.get("detail", "") or "").strip(),
        address=str(event.get("address", "") or ""),
        file=str(span.get("filename", "") or ""),
        line=int((span.get("start") or {}).get("line", 0)),
    )


def distinct(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Without duplicates, in order: Terraform repeats a diagnostic for every instance of a resource."""
    return list(dict.fromkeys(diagnostics))


def readable(diagnostic: Diagnostic, folder: PurePath) -> str:
    """``file:line: address: summary``, then the detail and the fix, indented."""
    where = []
    if diagnostic.file:
        where.append(f"{folder / diagnostic.file}:{diagnostic.line}")
    if diagnostic.address:
        where.append(diagnostic.address)
    head = ": ".join([*where, diagnostic.summary])
    body = diagnostic.detail.splitlines()
    advice = advise(diagnostic, folder)
    if advice:
        body += ["", *advice.splitlines()] if body else advice.splitlines()
    return "\n".join([head, *(f"  {line}".rstrip() for line in body)])


def grouped(diagnostics: Iterable[Diagnostic], folder: PurePath) -> list[str]:
    """Each diagnostic formatted by `readable`; equal ones of several resources once, with the addresses."""
    groups: dict[tuple[str, str], list[Diagnostic]] = {}
    for one in diagnostics:
        said = one.detail.replace(one.address, "…") if one.address else one.detail
        groups.setdefault((one.summary, said), []).append(one)
    return [_together(those, folder) for those in groups.values()]


def _together(those: list[Diagnostic], folder: PurePath) -> str:
    first, *others = those
    if not others:
        return readable(first, folder)
    addresses = [one.address for one in others if one.address]
    rest = len(addresses) - _NAMED
    named = [*addresses[:_NAMED], *([f"{rest} more"] if rest > 0 else [])]
    more = f"and the same {len(others)} more times" + (f": {', '.join(named)}" if named else "")
    return f"{readable(first, folder)}\n  {more}"


def advise(diagnostic: Diagnostic, folder: PurePath) -> str:
    """The fix for common errors; empty for others."""
    said = f"{diagnostic.summary}\n{diagnostic.detail}"
    if "acquiring the state lock" in said:
        lock = dict(_LOCK_FIELD.findall(said))
        who = lock.get("Who", "somebody")
        return (
            f"{who} is changing this environment ({lock.get('Operation', 'an operation')}, since "
            f"{lock.get('Created', 'an unknown time')}). Wait until it is done. If that run is dead:\n"
            f"  TF_DATA_DIR=../state/.terraform terraform -chdir={folder} force-unlock {lock.get('ID', 'ID')}"
        )
    if "state snapshot was created by Terraform" in said or "newer than current" in said:
        return "The state was written by a newer engine: install that one, or name it in CAUSEWAY_ENGINE."
    if "No valid credential sources" in said or "ExpiredToken" in said or "InvalidClientTokenId" in said:
        return "No working AWS credentials: `invoke doctor` lists those it looked for."
    return ""


def is_init_needed(diagnostic: Diagnostic) -> bool:
    """Whether ``init`` would fix it: providers, modules or the backend are missing or have changed."""
    said = f"{diagnostic.summary}\n{diagnostic.detail}".lower()
    return diagnostic.is_error and (
        "terraform init" in said
        or "tofu init" in said
        or "module not installed" in said
        or "backend initialization required" in said
        or "missing required provider" in said
    )


def is_stale_plan(diagnostic: Diagnostic) -> bool:
    """Whether the engine reports that the state has changed since the plan was made."""
    return diagnostic.is_error and "plan is stale" in diagnostic.summary.lower()


def is_denied(said: str) -> bool:
    """Whether AWS denied access, according to the engine's error about its backend."""
    return "AccessDenied" in said


def prevented(diagnostics: Iterable[Diagnostic]) -> tuple[str, ...]:
    """The addresses whose planned destruction ``prevent_destroy`` prevented."""
    found: dict[str, None] = {}
    for diagnostic in diagnostics:
        match = _PREVENTED.search(diagnostic.detail)
        if match and diagnostic.is_error:
            found[diagnostic.address or match[1]] = None
    return tuple(found)
