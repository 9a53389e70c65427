"""Golden folders: a spec, its lock, and everything that is rendered from them, kept and compared whole.

::

    tests/golden/<scenario>/
      spec.yaml     what a person wrote; the only file that is edited by hand
      lock.yaml     what must not move
      files.txt     every rendered file, also those that are copies of a static one
      out/          the rendered files; not the copies, which are in templates/ already
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff
from itertools import chain, islice
from pathlib import Path

from strategies.outputs import outputs_for

from infra.files import Files, under
from infra.load import load
from infra.render import render
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock, dump, parse

GOLDEN = Path(__file__).parent / "golden"
TEMPLATES = Path(__file__).parents[1] / "templates"
SPEC, LOCK, LISTING, OUT = "spec.yaml", "lock.yaml", "files.txt", "out"

_UPDATE = "'pytest --update-golden' rewrites it; look at what git says before you commit"
_MOST_LINES = 60


def scenarios() -> list[str]:
    """The golden folders there are."""
    return sorted(path.parent.name for path in GOLDEN.glob(f"*/{SPEC}"))


def rendered(folder: Path) -> dict[str, str]:
    """What a golden folder must hold beside its spec, by path."""
    lock_file = folder / LOCK
    lock = parse(lock_file.read_text(encoding="utf-8"), str(lock_file)) if lock_file.exists() else Lock()
    cluster, kept = resolve(load(folder / SPEC).spec, lock, folder.name)
    return kept_files(render(cluster, outputs_for(cluster)), dump(kept))


def kept_files(files: Files, lock: str) -> dict[str, str]:
    """The contents of a golden folder for these rendered files and this lock."""
    copies = {path for path, text in files.items() if _is_copy(path, text)}
    listing = "".join(f"{'copied' if path in copies else 'rendered':<9}{path}\n" for path in sorted(files))
    own = {path: text for path, text in files.items() if path not in copies}
    return {LOCK: lock, LISTING: listing, **under(OUT, own)}


def _is_copy(path: str, text: str) -> bool:
    """Whether the file is one of ``templates/``, letter by letter: at the same place, or in the ``static``
    folder of its target, which may be rendered once a site (``<target>/<site>/…``)."""
    target, _, below = path.partition("/")
    return any(
        static.is_file() and static.read_text(encoding="utf-8") == text
        for static in (
            TEMPLATES / path,
            TEMPLATES / target / "static" / below,
            TEMPLATES / target / "static" / below.partition("/")[2],
        )
    )


def differences(folder: Path, expected: Mapping[str, str]) -> list[str]:
    """Each file that is missing, stale or not the same, with the first lines that differ."""
    kept = _kept(folder)
    found = [f"{path} is missing" for path in sorted(expected.keys() - kept.keys())]
    found += [f"{path} is not rendered any more" for path in sorted(kept.keys() - expected.keys())]
    for path in sorted(expected.keys() & kept.keys()):
        if kept[path] != expected[path]:
            lines = unified_diff(
                kept[path].splitlines(), expected[path].splitlines(), f"golden/{path}", path, lineterm="", n=1
            )
            found.append("\n".join(chain([f"{path} differs:"], islice(lines, _MOST_LINES))))
    return found


def update(folder: Path, expected: Mapping[str, str]) -> None:
    """Write what is expected, and delete what is stale."""
    for path in _kept(folder).keys() - expected.keys():
        (folder / path).unlink()
    for path, text in expected.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")
    for left in sorted((folder / OUT).rglob("*"), reverse=True):
        if left.is_dir() and not any(left.iterdir()):
            left.rmdir()


def assert_golden(folder: Path, *, rewrite: bool) -> None:
    """Fails where the folder and what is rendered now are not the same, also when it was just rewritten."""
    expected = rendered(folder)
    found = differences(folder, expected)
    if found and rewrite:
        update(folder, expected)
        raise AssertionError(f"{folder.name} was rewritten; run again without --update-golden")
    if found:
        raise AssertionError(
            "\n".join([f"the golden folder {folder.name} is not what is rendered", *found, _UPDATE])
        )


def _kept(folder: Path) -> dict[str, str]:
    """Path → text of all that stands in the folder beside the spec."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path != folder / SPEC)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes().decode("utf-8", errors="backslashreplace")
        for path in paths
    }
