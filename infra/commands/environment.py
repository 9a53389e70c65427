"""An environment: its name, its files, and the models built from them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from infra.errors import Position, Problem, SpecError, UsageError, undotted
from infra.load import Loaded, load
from infra.nearest import meant_one_of
from infra.resolve.lockfile import Lock, dump, parse, without_regions

if TYPE_CHECKING:
    from infra.applied import Change
    from infra.model import Cluster, Outputs

SPECS: Final = Path("environments")
BUILD: Final = Path("build")
DEFAULT: Final = "local"

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Environment:
    """A file in ``environments/`` and the files beside it."""

    name: str
    rehearsed: bool = False
    """Use the embedded AWS whatever the spec says, with a separate build folder."""

    @property
    def spec_file(self) -> Path:
        return SPECS / f"{self.name}.yaml"

    @property
    def lock_file(self) -> Path:
        return SPECS / f"{self.name}.lock.yaml"

    @property
    def build(self) -> Path:
        return BUILD / (f"{self.name}.rehearsal" if self.rehearsed else self.name)

    @property
    def options(self) -> str:
        """The options that select it on a command line."""
        return f"--env {self.name}{' --rehearse' if self.rehearsed else ''}"


def find(name: str = "", *, rehearsed: bool = False) -> Environment:
    """The environment with this name; if the name is empty, that of ``INFRA_ENV``, else ``local``, else the
    only one.

    Raises ``UsageError``, listing the existing ones, if it does not exist.
    """
    wanted = name or os.environ.get("INFRA_ENV") or _default()
    found = Environment(wanted, rehearsed)
    # A name with a dot or a slash could lead to other files and build folders.
    if _NAME.fullmatch(wanted) and found.spec_file.is_file():
        return found
    if not SPECS.is_dir():
        raise UsageError(f"no folder {SPECS}/ here; run this in the project's own folder")
    hint = meant_one_of(Path(wanted).name.split(".")[0], _known())
    raise UsageError(f"{wanted}: no such environment in {SPECS}/; {hint}")


def _default() -> str:
    names = [file.stem for file in SPECS.glob("*.yaml") if _NAME.fullmatch(file.stem)]
    if DEFAULT in names:
        return DEFAULT
    known = names if len(names) < 2 else _known()
    return known[0] if len(known) == 1 else DEFAULT


def _known() -> list[str]:
    """The existing environments, without incomplete files that others only extend."""
    from infra.load.inherit import read
    from infra.schema import Spec

    needed = {name for name, field in Spec.model_fields.items() if field.is_required()}
    bases, complete = set(), []
    for file in sorted(SPECS.glob("*.yaml")):
        values = read(file)[0]
        base = values.child("extends")
        if base is not None and isinstance(base.content, str):
            bases.add((SPECS / base.content).resolve())
        complete.append((file, isinstance(values.content, dict) and needed <= values.content.keys()))
    return [
        file.stem
        for file, whole in complete
        if _NAME.fullmatch(file.stem) and (whole or file.resolve() not in bases)
    ]


def environments() -> list[str]:
    """The names that ``find`` accepts."""
    return _known() if SPECS.is_dir() else []


@dataclass(frozen=True)
class Project:
    """An environment's loaded and resolved files, each read once."""

    environment: Environment
    loaded: Loaded
    cluster: Cluster
    applied: bool
    """Whether anything was applied from this folder."""
    changes: tuple[Change, ...]
    """Differences from that; empty before the first apply."""
    kept: str
    """The lock file's text on disk; empty without one."""
    lock: str
    """The lock file's new text."""
    outputs: Outputs
    """The outputs of the last apply from this folder."""

    @cached_property
    def files(self) -> dict[str, str]:
        """All rendered files, by path below the build folder."""
        from infra.render import render

        return render(self.cluster, self.outputs)

    @cached_property
    def meaning(self) -> str:
        """A JSON text that changes with the spec's meaning: the next spec is compared with it."""
        from infra.applied import snapshot

        return json.dumps(snapshot(self.loaded.spec, self.cluster), sort_keys=True)


def load_project(
    environment: Environment,
    *,
    changeable: bool = False,
    gone: Iterable[str] = (),
    outputs: Outputs | None = None,
) -> Project:
    """Load and resolve. Raises ``SpecError`` with all problems and their positions. Writes nothing.

    Also refuses changes that a live cluster does not allow, unless ``changeable``, as for a cluster to be
    destroyed. ``gone`` are regions that left the spec and have no more resources: they are removed from the
    lock. ``outputs`` replace the stored ones of the last apply; raises ``DriveError`` if those are damaged.
    """
    from infra.drive.build_folders import Folders
    from infra.drive.outputs import recall
    from infra.resolve.cluster import resolve

    loaded = load(environment.spec_file)
    before = applied(environment)
    if before is not None and not changeable:
        _refuse(before, loaded)
    kept = read_lock(environment)
    try:
        held = without_regions(_parsed(environment, kept), gone)
        cluster, lock = resolve(loaded.spec, held, environment.name)
    except SpecError as problem:
        raise placed(problem, loaded) from None
    changes = _refuse(before, loaded, cluster) if before is not None and not changeable else ()
    if outputs is None:
        outputs = recall(Folders(environment.build.absolute()))
    return Project(environment, loaded, cluster, before is not None, changes, kept, dump(lock), outputs)


def applied(environment: Environment) -> Mapping[str, Any] | None:
    """The spec as last applied from this folder, in the form that ``infra.applied`` compares.

    None before the first apply. Raises ``DriveError`` if the snapshot is damaged.
    """
    from infra.drive import last_applied
    from infra.drive.build_folders import Folders

    folders = Folders(environment.build.absolute())
    about = last_applied.about(folders)
    if about is None or about.get("begun"):
        return None  # a first apply that did not finish does not record the account
    try:
        values: Mapping[str, Any] = json.loads(about["spec"])
    except (ValueError, KeyError, TypeError):
        raise last_applied.damaged(folders.applied) from None
    return values


def _refuse(before: Mapping[str, Any], loaded: Loaded, cluster: Cluster | None = None) -> tuple[Change, ...]:
    from infra.applied import changes, refused

    found = changes(before, loaded.spec, cluster)
    if problems := refused(found, loaded.position):
        raise SpecError(problems)
    return found


def read_lock(environment: Environment) -> str:
    """The lock file's text; empty without one. Raises ``SpecError`` if it is not text."""
    file = environment.lock_file
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        place = Position(str(file), error.object.count(b"\n", 0, error.start) + 1)
        hint = "this file is written by us: take it back from git"
        raise SpecError([Problem("LOCK001", "", "not UTF-8 text", position=place, hint=hint)]) from None


def _parsed(environment: Environment, text: str) -> Lock:
    lock = parse(text, str(environment.lock_file))
    return _rehearsed(environment, lock) if environment.rehearsed else lock


def _rehearsed(environment: Environment, lock: Lock) -> Lock:
    """The lock, with the decisions of the last rehearsed apply, as a rehearsal does not write a lock file."""
    from infra.drive import last_applied
    from infra.drive.build_folders import Folders

    about = last_applied.about(Folders(environment.build.absolute()))
    if about is None:
        return lock
    before = parse(str(about.get("lock", "")), str(environment.build))
    return replace(
        lock,
        blocks={**before.blocks, **lock.blocks},
        numbers={**before.numbers, **lock.numbers},
        regions={**before.regions, **lock.regions},
        zones={**before.zones, **lock.zones},
        pools={**before.pools, **lock.pools},
    )


def placed(problem: SpecError, loaded: Loaded) -> SpecError:
    """The same problems, with their positions in the spec, which only the loader knows."""

    def position(path: str) -> Position:
        return loaded.position(undotted(path))

    return SpecError(
        replace(each, position=each.position or position(each.path)) for each in problem.problems
    )


def keep_lock(project: Project) -> bool:
    """Write the lock file if it has changed; returns whether it was written.

    The replacement is atomic. A rehearsal does not write, as nothing it does is permanent. Raises
    ``UsageError`` if the file was changed since it was read, so that no decision is lost.
    """
    environment = project.environment
    if environment.rehearsed or project.lock == project.kept:
        return False
    if not project.kept and project.lock == dump(Lock()):
        return False
    present = read_lock(environment)
    if present == project.lock:
        return False  # written by this run before, or by another that made the same decisions
    if present != project.kept:
        raise UsageError(f"{environment.lock_file} was changed while this ran; run this again")
    fresh = environment.lock_file.with_suffix(".new")
    fresh.write_text(project.lock, encoding="utf-8")
    fresh.replace(environment.lock_file)
    return True
