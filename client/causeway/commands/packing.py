"""Checks the code of a job and packs it for upload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from causeway.code.archive import digest_of, write_archive
from causeway.code.limit import DEFAULT_LIMIT, check_limit
from causeway.code.secrets import find_secrets
from causeway.code.tree import Entry, look
from causeway.commands.describing import counted_files
from causeway.errors import CausewayError, InputError, Problem
from causeway.job import Code
from causeway.jobfile import LoadedJob
from causeway.packages import check_name
from causeway.units import format_size


@dataclass(frozen=True)
class Packed:
    """The code to ship."""

    root: Path
    entries: Sequence[Entry]
    digest: str
    """Name of the archive; empty if a job has no code."""
    left_out: Sequence[str] = ()
    """Output folders of tools that git neither tracks nor ignores."""

    @property
    def described(self) -> str:
        """Describe it: ``42 files, 1.3 MiB, 33f67facf9dc; without wandb/``."""
        size = format_size(sum(entry.size for entry in self.entries))
        without = f"; without {', '.join(self.left_out)}" if self.left_out else ""
        return f"{counted_files(len(self.entries))}, {size}, {self.digest[:12]}{without}"


def write(packed: Packed, archive: IO[bytes]) -> int:
    """Write the archive into an empty file, rewind it, and return its size. Raises CausewayError if the code
    has changed since it was checked."""
    if packed.digest and write_archive(packed.root, packed.entries, archive) != packed.digest:
        raise CausewayError(f"{packed.root} changed while it was packed; run it again")
    size = archive.tell()
    archive.seek(0)
    return size


def pack(loaded: LoadedJob, *, limit: int = DEFAULT_LIMIT, allow_secrets: bool) -> Packed:
    """Check the code of a job. Raises InputError with everything that prevents shipping it.

    ``limit``: the cluster's limit in bytes; a job's own may only be lower.
    """
    code = loaded.job.code
    if not isinstance(code, Code):
        if loaded.job.python:
            raise InputError(
                [loaded.placed(Problem("job", "python", "it is a file of the code, but code is false"))]
            )
        return Packed(loaded.folder, (), "")
    root = loaded.folder / code.path
    try:
        tree = look(root, include=code.include, exclude=code.exclude)
    except InputError as error:
        raise InputError([loaded.placed(each) if each.field else each for each in error.problems]) from None
    entries = tree.entries
    problems = check_limit(str(root), entries, min(code.limit or limit, limit))
    if loaded.job.python:
        shipped = {entry.path for entry in entries}
        problems += [loaded.placed(each) for each in check_name(loaded.job.python, shipped)]
    if not allow_secrets:
        problems += find_secrets(root, entries)
    if problems:
        raise InputError(problems)
    return Packed(root, entries, digest_of(root, entries), tree.left_out)
