"""The changes in rendered files, formatted for a review. Pure."""

from __future__ import annotations

import difflib
import io
from dataclasses import dataclass
from typing import Any

from infra.files import Files

_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class FileDiff:
    """A file that differs."""

    path: str
    kind: str
    """``added``, ``removed`` or ``changed``."""
    added: int
    """Lines."""
    removed: int
    """Lines."""
    lines: tuple[str, ...]
    """Unified diff, without line endings."""


@dataclass(frozen=True, slots=True)
class Diff:
    """All files that differ, by path. False if there are none."""

    files: tuple[FileDiff, ...]

    def __bool__(self) -> bool:
        return bool(self.files)


def diff(before: Files, after: Files, *, context: int = 3) -> Diff:
    """The differences from ``before`` to ``after``."""
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return Diff(tuple(_file(path, before.get(path), after.get(path), context) for path in paths))


def _file(path: str, before: str | None, after: str | None, context: int) -> FileDiff:
    lines = []
    for line in difflib.unified_diff(
        _lines(before),
        _lines(after),
        "/dev/null" if before is None else f"applied/{path}",
        "/dev/null" if after is None else f"now/{path}",
        n=context,
    ):
        lines.append(line.rstrip("\n"))
        if not line.endswith("\n"):
            lines.append("\\ No newline at end of file")
    body = lines[2:]
    return FileDiff(
        path=path,
        kind="added" if before is None else "removed" if after is None else "changed",
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
        lines=tuple(lines),
    )


def _lines(text: str | None) -> list[str]:
    # Not splitlines: it also splits at form feeds and the like, which editors do not count as line endings.
    return list(io.StringIO(text or "", newline="\n"))


def text(found: Diff, *, colour: bool = False) -> str:
    """A unified diff that ``patch`` and ``git apply`` accept, followed by a count."""
    if not found:
        return "Nothing has changed since the last apply."
    shown: list[str] = []
    for one in found.files:
        # A new or removed file that is empty has no lines.
        shown += one.lines or (f"{one.kind}: {one.path} (empty)",)
    if colour:
        shown = [_coloured(line) for line in shown]
    counts = [
        f"{sum(one.kind == kind for one in found.files)} {kind}" for kind in ("added", "changed", "removed")
    ]
    lines = f"+{sum(one.added for one in found.files)} -{sum(one.removed for one in found.files)} lines"
    return "\n".join([*shown, "", f"Files: {', '.join(counts)}; {lines}"])


def to_json(found: Diff) -> dict[str, Any]:
    """``{"changed": bool, "files": [{"path", "kind", "added", "removed", "diff"}]}``."""
    return {
        "changed": bool(found),
        "files": [
            {
                "path": one.path,
                "kind": one.kind,
                "added": one.added,
                "removed": one.removed,
                "diff": "\n".join(one.lines),
            }
            for one in found.files
        ],
    }


def _coloured(line: str) -> str:
    if line.startswith(("+++ ", "--- ")):
        return f"{_BOLD}{line}{_PLAIN}"
    colour = _COLOURS.get(line[:1])
    return f"{colour}{line}{_PLAIN}" if colour else line
