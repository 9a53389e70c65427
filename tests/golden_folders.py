"""Golden folders: a spec, its lock, and what is rendered from them, kept and compared.

::

    tests/golden/
      kept.yaml       what each scenario is for, and which of its files are kept whole
      <scenario>/
        spec.yaml     what a person wrote; edited by hand, as kept.yaml is
        lock.yaml     what must not move
        files.txt     every rendered file, and how it is held: each change is seen here or in out/
        out/          the files that are kept whole
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import unified_diff
from fnmatch import fnmatchcase
from functools import cache
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path

import yaml
from strategies.outputs import outputs_for

from infra import __version__
from infra.files import Files, under
from infra.load import load
from infra.model import Cluster
from infra.render import render
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock, dump, parse

GOLDEN = Path(__file__).parent / "golden"
TEMPLATES = Path(__file__).parents[1] / "templates"
SPEC, LOCK, LISTING, OUT = "spec.yaml", "lock.yaml", "files.txt", "out"
BASE = "minimal"
"""The scenario whose files the others do not keep a second time."""

_UPDATE = "'pytest --update-golden' rewrites it; look at what git says before you commit"
_MOST_LINES = 60
_DIGITS = 16


@dataclass(frozen=True)
class Selection:
    """Which rendered files are kept whole: those that match ``kept`` and not ``hashed`` (shell patterns whose
    ``*`` stands for slashes, too). ``split``: JSON files that are kept in parts, and the member whose values
    are a part each."""

    kept: tuple[str, ...] = ("*",)
    hashed: tuple[str, ...] = ()
    split: Mapping[str, str] = field(default_factory=dict)

    def keeps(self, path: str) -> bool:
        """Whether the file is kept as it is."""
        return (
            any(fnmatchcase(path, pattern) for pattern in self.kept)
            and not any(fnmatchcase(path, pattern) for pattern in self.hashed)
            and path not in self.split
        )


@cache
def selections() -> dict[str, Selection]:
    """The selection of each scenario, from ``kept.yaml``."""
    rows = yaml.safe_load((GOLDEN / "kept.yaml").read_text(encoding="utf-8"))
    return {
        name: Selection(tuple(row["kept"]), tuple(row.get("hashed", ())), row.get("split", {}))
        for name, row in rows.items()
    }


def scenarios() -> list[str]:
    """The golden folders there are."""
    return sorted(path.parent.name for path in GOLDEN.glob(f"*/{SPEC}"))


def resolved(folder: Path) -> tuple[Cluster, Lock]:
    """The cluster of a golden folder's spec and lock, and the new lock; a new folder has none yet."""
    lock_file = folder / LOCK
    lock = parse(lock_file.read_text(encoding="utf-8"), str(lock_file)) if lock_file.exists() else Lock()
    return resolve(load(folder / SPEC).spec, lock, folder.name)


def rendered(folder: Path) -> tuple[Files, str]:
    """Everything that is rendered from a golden folder's spec and lock, and the new lock."""
    cluster, kept = resolved(folder)
    return render(cluster, outputs_for(cluster)), dump(kept)


def expected(folder: Path) -> dict[str, str]:
    """What a golden folder must hold beside its spec, by path. One that is not in ``kept.yaml`` holds all."""
    files, lock = rendered(folder)
    selection = selections().get(folder.name)
    return kept_files(files, lock, selection, _base() if selection and folder.name != BASE else None)


@cache
def _base() -> Files:
    """The files that ``BASE`` keeps whole."""
    files, _ = rendered(GOLDEN / BASE)
    selection = selections()[BASE]
    return {path: text for path, text in files.items() if selection.keeps(path)}


def kept_files(
    files: Files, lock: str, selection: Selection | None = None, base: Files | None = None
) -> dict[str, str]:
    """The contents of a golden folder for these rendered files and this lock.

    ``base``: files that another scenario keeps; those that are the same here are not kept again.
    """
    chosen, elsewhere = selection or Selection(), base or {}
    held = {path: _held(path, text, chosen, elsewhere) for path, text in files.items()}
    listing = "".join(f"{held[path]:<{len('sha256:') + _DIGITS}} {path}\n" for path in sorted(files))
    own = {path: text for path, text in files.items() if held[path] == "kept"}
    for path in chosen.split.keys() & files.keys():
        found = parts(path, files[path], chosen.split[path])
        own |= {part: text for part, text in found.items() if part == path or chosen.keeps(part)}
    return {LOCK: lock, LISTING: listing, **under(OUT, own)}


def _held(path: str, text: str, selection: Selection, base: Files) -> str:
    """How a file is held: ``kept`` here, ``minimal`` there, ``copied`` from ``templates/``, or its digest."""
    if _is_copy(path, text):
        return "copied"
    if base.get(path) == text:
        return BASE
    if selection.keeps(path):
        return "kept"
    return f"sha256:{sha256(text.encode()).hexdigest()[:_DIGITS]}"


def parts(path: str, text: str, member: str) -> dict[str, str]:
    """A JSON object as several files: ``<path>`` without ``member``, and ``<stem>.<member>/<name>.json`` for
    each of that member's values."""
    document = json.loads(text)
    values = document.pop(member)
    folder = f"{path.removesuffix('.json')}.{member}"
    named = {path: document, **{f"{folder}/{name}.json": value for name, value in values.items()}}
    return {part: json.dumps(value, indent=2, ensure_ascii=False) + "\n" for part, value in named.items()}


def _is_copy(path: str, text: str) -> bool:
    """Whether the file is one of ``templates/``, letter by letter: at the same place, in the ``root`` folder
    of its target, or in its ``static`` folder, which may be rendered once a site (``<target>/<site>/…``)."""
    target, _, below = path.partition("/")
    return any(
        static.is_file() and static.read_text(encoding="utf-8") == text
        for static in (
            TEMPLATES / path,
            TEMPLATES / target / "root" / below,
            TEMPLATES / target / "static" / below,
            TEMPLATES / target / "static" / below.partition("/")[2],
        )
    )


def differences(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """Each file that is missing, stale or not the same, with the first lines that differ."""
    kept = _kept(folder)
    found = [f"{path} is missing" for path in sorted(wanted.keys() - kept.keys())]
    found += [f"{path} is not to be kept" for path in sorted(kept.keys() - wanted.keys())]
    for path in sorted(wanted.keys() & kept.keys()):
        if kept[path] != wanted[path]:
            lines = unified_diff(
                kept[path].splitlines(), wanted[path].splitlines(), f"golden/{path}", path, lineterm="", n=1
            )
            found.append("\n".join(chain([f"{path} differs:"], islice(lines, _MOST_LINES))))
    return found


def update(folder: Path, wanted: Mapping[str, str]) -> None:
    """Write what is wanted, and delete what is stale."""
    for path in _kept(folder).keys() - wanted.keys():
        (folder / path).unlink()
    for path, text in wanted.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")
    for left in sorted((folder / OUT).rglob("*"), reverse=True):
        if left.is_dir() and not any(left.iterdir()):
            left.rmdir()


def assert_golden(folder: Path, *, rewrite: bool) -> None:
    """Fails where the folder and what is rendered now are not the same, also when it was just rewritten."""
    wanted = expected(folder)
    found = differences(folder, wanted)
    if found and rewrite:
        update(folder, wanted)
        raise AssertionError(f"{folder.name} was rewritten; run again without --update-golden")
    if found:
        raise AssertionError(
            "\n".join([f"the golden folder {folder.name} is not what is rendered", *found, _UPDATE])
        )


def assert_text(file: Path, wanted: str, *, rewrite: bool) -> None:
    """Fails where the file is not this text, also when it was just rewritten. It holds no version of ours."""
    wanted = wanted.replace(f"Causeway {__version__}", "Causeway <version>")
    kept = file.read_text(encoding="utf-8") if file.exists() else ""
    if kept == wanted:
        return
    if rewrite:
        file.write_text(wanted, encoding="utf-8", newline="\n")
        raise AssertionError(f"{file.name} was rewritten; run again without --update-golden")
    lines = unified_diff(kept.splitlines(), wanted.splitlines(), file.name, "now", lineterm="", n=0)
    raise AssertionError("\n".join([*islice(lines, _MOST_LINES), _UPDATE]))


def _kept(folder: Path) -> dict[str, str]:
    """Path → text of all that stands in the folder beside the spec."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path != folder / SPEC)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes().decode("utf-8", errors="backslashreplace")
        for path in paths
    }
