"""Which files of a folder are shipped: files tracked by git, and new files that are neither ignored nor
data."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec

from causeway.errors import InputError, Problem

IGNORE_FILE = ".causewayignore"
_CACHES = (
    ".git", "__pycache__/", "*.py[co]", ".ipynb_checkpoints/", ".mypy_cache/", ".pytest_cache/",
    ".ruff_cache/", ".tox/", ".DS_Store",
)  # fmt: skip
_MADE = (".venv/", "venv/", "node_modules/", "*.egg-info/", "wandb/", "mlruns/")
"""Output of tools; a folder with a ``pyvenv.cfg`` counts as well, whatever its name. Both lists are patterns
of a `.gitignore`, and apply to files that git does not track."""
_WILDCARDS = frozenset("*?[!")


@dataclass(frozen=True)
class Entry:
    """A file or a symbolic link."""

    path: str
    """Relative to the folder, with ``/``."""
    size: int
    """In bytes; 0 for a link."""
    executable: bool
    link: str | None = None
    """Target of a symbolic link."""


@dataclass(frozen=True)
class Tree:
    """The shipped files of a folder."""

    entries: Sequence[Entry]
    """Sorted by path."""
    left_out: Sequence[str]
    """Output folders of tools (``wandb/``) that were neither included nor excluded explicitly."""


def list_tree(folder: Path, *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[Entry]:
    """List the shipped files, sorted by path. Raises InputError for files that cannot be shipped."""
    return [*look(folder, include=include, exclude=exclude).entries]


def look(folder: Path, *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Tree:
    """List what is shipped, and what could be but is not. Raises InputError for files that cannot be
    shipped."""
    if not folder.is_dir():
        raise InputError([Problem(str(folder), "code", f"{folder} is not a folder")])
    rules = _Rules([*_own_patterns(folder), *exclude], include)
    environments = set[str]()
    entries, problems, left_out = [], [], dict[str, None]()
    for path, kind in sorted(set(_paths(folder, ignored=rules.take_ignored))):
        if not rules.ship(path, kind):
            if kind == _NEW and (made := rules.made_by_tools(path)):
                left_out[made] = None
            continue
        if kind == _NEW and (environment := _in_environment(folder, path, environments)):
            left_out[environment] = None
            continue
        full = folder / path
        try:
            status = full.lstat()
            link = str(full.readlink()) if full.is_symlink() else None
        except FileNotFoundError:
            continue  # tracked by git, but deleted
        except OSError as error:
            problems.append(unreadable(folder, path, error))
            continue
        if link is not None:
            if _leaves(path, link):
                hint = f"ignore it: {ignoring(path)}"
                problems.append(Problem(str(full), "", f"a link out of the folder, to {link}", hint))
            entries.append(Entry(path, 0, executable=False, link=link))
        elif full.is_file():
            entries.append(Entry(path, status.st_size, executable=bool(status.st_mode & 0o100)))
        # Sockets, pipes and devices are not code.
    if problems:
        raise InputError(problems)
    return Tree(entries, [*left_out])


def unreadable(folder: Path, path: str, error: OSError) -> Problem:
    """The problem for a file that cannot be read."""
    what = f"cannot be read: {error.strerror or error}"
    return Problem(str(folder / path), "", what, f"ignore it: {ignoring(path)}")


def ignoring(path: str) -> str:
    """The command that excludes a path, or a pattern relative to one (gitignore(5) defines the escapes)."""
    line = "/" + "".join(f"\\{each}" if each in "\\*?[" else each for each in path)
    return appending(line[:-1] + "\\ " if line.endswith(" ") else line)


def appending(pattern: str) -> str:
    """The command that appends a line to the pattern file. Some shells' echo interprets backslashes."""
    say = "printf '%s\\n'" if "\\" in pattern else "echo"
    quoted = f"'{pattern}'" if "'" not in pattern else shlex.quote(pattern)
    return f"{say} {quoted} >> {IGNORE_FILE}"


_TRACKED, _NEW, _IGNORED = "tracked", "new", "ignored"
"""The git status of a file. Without git all files are new."""


class _Rules:
    """Rules that decide which files are code."""

    def __init__(self, own: Sequence[str], include: Sequence[str]) -> None:
        """``own``: patterns of files that are not shipped, or, with ``!``, of files that are shipped
        nevertheless."""
        self._own = GitIgnoreSpec.from_lines(own)
        self._caches = GitIgnoreSpec.from_lines(_CACHES)
        self._never = GitIgnoreSpec.from_lines([*_CACHES, *_MADE, *own])
        self._made = GitIgnoreSpec.from_lines(_MADE)
        self._wanted = GitIgnoreSpec.from_lines(include) if include else None
        named = [each for each in include if not _WILDCARDS & set(each)]
        self._named = GitIgnoreSpec.from_lines(named)
        self.take_ignored = bool(named) or any(line.startswith("!") for line in own)
        """Whether files that git ignores may be code."""

    def ship(self, path: str, kind: str) -> bool:
        if self._wanted and not self._wanted.match_file(path):
            return False
        if kind == _TRACKED:
            return not self._own.match_file(path)
        if self._named.match_file(path):  # it is named explicitly
            return not self._own.match_file(path) and not self._caches.match_file(path)
        if kind == _NEW:
            return not self._never.match_file(path)
        return self._never.check_file(path).include is False

    def made_by_tools(self, path: str) -> str:
        """The output folder of a tool that contains the path; empty if another rule excludes it."""
        if self._caches.match_file(path) or self._own.match_file(path):
            return ""
        parts = path.split("/")
        heads = ("/".join(parts[:count]) + "/" for count in range(1, len(parts)))
        return next((head for head in heads if self._made.match_file(head)), "")


def _own_patterns(folder: Path) -> list[str]:
    """Read ``.causewayignore``. Raises InputError if that fails: the files it names must not be shipped."""
    file = folder / IGNORE_FILE
    if not file.is_file():
        return []
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError([Problem(str(file), "", f"cannot be read: {error.strerror or error}")]) from None
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError([Problem(f"{file}:{line}", "", "not UTF-8", "save it as UTF-8")]) from None


def _paths(folder: Path, *, ignored: bool) -> Iterator[tuple[str, str]]:
    """Yield paths with their git status. ``ignored``: include files that git ignores."""
    listed = _of_git(folder, ignored=ignored)
    if listed is None:
        yield from ((path, _NEW) for path in _walk(folder))
        return
    for path, kind in listed:
        full = folder / path
        if full.is_dir() and not full.is_symlink():  # a submodule, or a nested repository
            inner = _paths(full, ignored=ignored)
            yield from ((f"{path.rstrip('/')}/{name}", its_kind) for name, its_kind in inner)
        else:
            yield path, kind


def _of_git(folder: Path, *, ignored: bool) -> list[tuple[str, str]] | None:
    """Return the git status of the folder; None if it is not in a repository. Raises InputError if git fails.

    Otherwise a repository that git cannot read would be shipped with everything that it ignores.
    """
    if (repository := _repository(folder)) is None:
        return None
    tags = {"?": _NEW}
    listed = _git(folder, repository, "-t", "--cached", "--others", "--exclude-standard")
    found = [(line[2:], tags.get(line[0], _TRACKED)) for line in listed]
    if not found:
        # Git lists no files in a folder that its repository ignores. The user named this one, so it is
        # shipped.
        return None
    if ignored:
        more = _git(folder, repository, "--others", "--ignored", "--exclude-standard")
        found += [(path, _IGNORED) for path in more]
    return found


def _repository(folder: Path) -> Path | None:
    """Return the folder with the ``.git`` folder or file that contains it."""
    whole = folder.resolve()
    return next((each for each in (whole, *whole.parents) if (each / ".git").exists()), None)


def _git(folder: Path, repository: Path, *options: str) -> list[str]:
    """Return the paths that ``git ls-files`` prints."""
    # Git sets these variables for its hooks: use the repository of the folder instead.
    environ = {key: value for key, value in os.environ.items() if key not in ("GIT_DIR", "GIT_INDEX_FILE")}
    environ["LC_ALL"] = "C"
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "ls-files", "-z", *options],
            capture_output=True,
            env=environ,
            check=False,
        )
    except FileNotFoundError:
        what, hint = "it is in a git repository, and git is not on PATH", "install git"
        raise InputError([Problem(str(folder), "code", what, hint)]) from None
    if done.returncode != 0:
        said = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        cure = [line.strip() for line in said if line.startswith("\t")]
        what = f"git can't list its files: {said[0] if said else f'exit code {done.returncode}'}"
        hint = cure[0] if cure else f"git -C {shlex.quote(str(repository))} status shows more"
        raise InputError([Problem(str(folder), "code", what, hint)])
    return [os.fsdecode(path) for path in done.stdout.split(b"\0") if path]


def _walk(folder: Path) -> Iterator[str]:
    def fails(error: OSError) -> None:
        path = Path(error.filename).relative_to(folder).as_posix()
        raise InputError([unreadable(folder, f"{path}/", error)])

    for parent, folders, files in os.walk(folder, onerror=fails):
        if "pyvenv.cfg" in files:
            folders.clear()
            files = ["pyvenv.cfg"]
        folders[:] = [name for name in folders if name not in (".git", "__pycache__")]
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in (*files, *links):
            yield Path(parent, name).relative_to(folder).as_posix()


def _in_environment(folder: Path, path: str, known: set[str]) -> str:
    """Return the virtual environment that contains the path, if any. ``known``: environments found so far."""
    head = ""
    for part in path.split("/")[:-1]:
        head = f"{head}{part}/"
        if head in known:
            return head
        if path == f"{head}pyvenv.cfg" or (folder / head / "pyvenv.cfg").is_file():
            known.add(head)
            return head
    return ""


def _leaves(path: str, link: str) -> bool:
    """Whether a link is absolute, or leads out of the folder."""
    target = os.path.normpath(PurePosixPath(path).parent / link)
    return target.startswith(("/", "../")) or target == ".."
