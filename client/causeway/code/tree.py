"""Which files of a folder are shipped: as git sees it, less what is never code."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec

from causeway.errors import InputError, Problem

IGNORE_FILE = ".causewayignore"
NEVER = (
    ".git", "__pycache__/", "*.py[co]", ".venv/", "venv/", "node_modules/", ".ipynb_checkpoints/",
    ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".tox/", ".DS_Store", "*.egg-info/", "wandb/",
    "mlruns/",
)  # fmt: skip
"""Patterns of a `.gitignore`. A folder with a ``pyvenv.cfg`` is a virtual environment, whatever its name."""


@dataclass(frozen=True)
class Entry:
    """A file or a symbolic link."""

    path: str
    """Relative to the folder, with ``/``."""
    size: int
    """In bytes; 0 of a link."""
    executable: bool
    link: str | None = None
    """Where a symbolic link points."""


def list_tree(folder: Path, *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[Entry]:
    """What is shipped, sorted by path. InputError for what can't be."""
    if not folder.is_dir():
        raise InputError([Problem(str(folder), "code", "not a folder")])
    spec = GitIgnoreSpec.from_lines([*NEVER, *_own_patterns(folder), *exclude])
    wanted = GitIgnoreSpec.from_lines(include) if include else None
    environments = set[str]()
    entries, problems = [], []
    for path in sorted(set(_paths(folder))):
        if spec.match_file(path) or (wanted and not wanted.match_file(path)):
            continue
        if _in_environment(folder, path, environments):
            continue
        full = folder / path
        try:
            status = full.lstat()
            link = str(full.readlink()) if full.is_symlink() else None
        except FileNotFoundError:
            continue  # tracked by git, and deleted
        if link is not None:
            if _leaves(path, link):
                hint = f"ignore it: echo '/{path}' >> {IGNORE_FILE}"
                problems.append(Problem(str(full), "", f"a link out of the folder, to {link}", hint))
            entries.append(Entry(path, 0, executable=False, link=link))
        elif full.is_file():
            entries.append(Entry(path, status.st_size, executable=bool(status.st_mode & 0o100)))
        # Sockets, pipes and devices are not code.
    if problems:
        raise InputError(problems)
    return entries


def _own_patterns(folder: Path) -> list[str]:
    file = folder / IGNORE_FILE
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []


def _paths(folder: Path) -> Iterator[str]:
    """Paths as git sees them; all where git does not know the folder."""
    listed = _of_git(folder)
    if listed is None:
        yield from _walk(folder)
        return
    for path in listed:
        full = folder / path
        if full.is_dir() and not full.is_symlink():  # a submodule, or a repository of its own
            yield from (f"{path.rstrip('/')}/{inner}" for inner in _paths(full))
        else:
            yield path


def _of_git(folder: Path) -> list[str] | None:
    """Tracked, and untracked but not ignored. None where git is not there, or knows nothing of the folder."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    # Git's hooks set these for the processes that they start: the folder's own repository is meant.
    environ = {key: value for key, value in os.environ.items() if key not in ("GIT_DIR", "GIT_INDEX_FILE")}
    try:
        done = subprocess.run(command, capture_output=True, env=environ, check=False)
    except FileNotFoundError:
        return None
    if done.returncode != 0:
        return None
    paths = [os.fsdecode(path) for path in done.stdout.split(b"\0") if path]
    # A folder that its repository ignores has no files in git's eyes. It was named, so it is meant.
    return paths or None


def _walk(folder: Path) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in (".git", "__pycache__", "node_modules")]
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in (*files, *links):
            yield Path(parent, name).relative_to(folder).as_posix()


def _in_environment(folder: Path, path: str, known: set[str]) -> bool:
    """Whether the path lies in a virtual environment; ``known``: those found so far."""
    head = ""
    for part in path.split("/")[:-1]:
        head = f"{head}{part}/"
        if head in known:
            return True
        if path == f"{head}pyvenv.cfg" or (folder / head / "pyvenv.cfg").is_file():
            known.add(head)
            return True
    return False


def _leaves(path: str, link: str) -> bool:
    """Whether a link is absolute, or leads out of the folder."""
    target = os.path.normpath(PurePosixPath(path).parent / link)
    return target.startswith(("/", "../")) or target == ".."
