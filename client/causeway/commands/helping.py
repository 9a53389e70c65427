"""``help job``: prints the reference of job files."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator

from causeway.reference import markdown

_WIDEST = 100
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_CELLS = re.compile(r"(?<!\\) \| ")


def job_fields() -> str:
    """Print all fields of a job file, as in docs/job.md."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    return "\n".join(_lines(width)) + "\n"


def _lines(width: int) -> Iterator[str]:
    shown_as_it_is = False
    for line in markdown().splitlines():
        if line.startswith("```"):
            shown_as_it_is = not shown_as_it_is
        elif shown_as_it_is:
            yield f"    {line}"
        elif line.startswith("| `"):
            field, kind, default, meaning = _CELLS.split(line.removeprefix("| ").removesuffix(" |"))
            given = f"; {_plain(default)}" if default == "**required**" else f"; default {_plain(default)}"
            yield f"  {_plain(field)}  ({_plain(kind)}{given if default else ''})"
            yield from textwrap.wrap(
                _plain(meaning), width, initial_indent=" " * 6, subsequent_indent=" " * 6
            )
        elif line.startswith("|"):
            continue
        elif line.startswith("#"):
            yield _plain(line.lstrip("# "))
        else:
            yield _plain(line)


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("**", "").replace("`", "")
