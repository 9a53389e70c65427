"""An environment: its name, its files, and what they mean."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from infra.errors import Position, SpecError, UsageError, undotted
from infra.load import Loaded, load
from infra.nearest import nearest
from infra.resolve.lockfile import Lock, dump, parse

if TYPE_CHECKING:
    from infra.model import Cluster

SPECS: Final = Path("environments")
BUILD: Final = Path("build")
DEFAULT: Final = "local"


@dataclass(frozen=True, slots=True)
class Environment:
    """One file in ``environments/`` and what stands beside it."""

    name: str
    rehearsed: bool = False
    """Driven against the embedded AWS whatever its spec says, in a build folder of its own."""

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
        """The options that name it on a command line."""
        return f"--env {self.name}{' --rehearse' if self.rehearsed else ''}"


def find(name: str = "", *, rehearsed: bool = False) -> Environment:
    """The environment of a name; of ``INFRA_ENV``, else ``local``, without one.

    ``UsageError``, with the ones there are, when it does not exist.
    """
    wanted = name or os.environ.get("INFRA_ENV") or DEFAULT
    found = Environment(wanted, rehearsed)
    if not found.spec_file.is_file():
        known = sorted(file.stem for file in SPECS.glob("*.yaml") if "." not in file.stem)
        near = nearest(wanted, known)
        hint = f"did you mean {near}?" if near else f"there are: {', '.join(known) or 'none'}"
        raise UsageError(f"{found.spec_file}: no such environment; {hint}")
    return found


@dataclass(frozen=True)
class Understood:
    """What an environment's files mean."""

    environment: Environment
    loaded: Loaded
    cluster: Cluster
    kept: str
    """The lock file's text as it stands on disk; empty without one."""
    lock: str
    """Its text as it must be from now on."""

    @cached_property
    def files(self) -> dict[str, str]:
        """Everything that is rendered, by path below the build folder."""
        from infra.render import render

        return render(self.cluster)

    @cached_property
    def spec(self) -> Mapping[str, object]:
        """The spec with all its defaults, as plain values: what update policies are held against."""
        plain: Mapping[str, object] = self.loaded.spec.model_dump(mode="json")
        return plain

    @property
    def meaning(self) -> str:
        """A text that changes when the spec's meaning does."""
        return json.dumps(self.spec, sort_keys=True)


def understand(environment: Environment) -> Understood:
    """Load and resolve. ``SpecError`` with every problem there is, each with its place. Writes nothing."""
    loaded = load(environment.spec_file)
    kept = read_lock(environment)
    try:
        from infra.resolve.cluster import resolve

        cluster, lock = resolve(loaded.spec, _parsed(environment, kept), environment.name)
    except SpecError as problem:
        raise placed(problem, loaded) from None
    return Understood(environment, loaded, cluster, kept, dump(lock))


def read_lock(environment: Environment) -> str:
    """The lock file's text; empty without one."""
    try:
        return environment.lock_file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _parsed(environment: Environment, text: str) -> Lock:
    return parse(text, str(environment.lock_file))


def placed(problem: SpecError, loaded: Loaded) -> SpecError:
    """The same problems, with the places in the spec that only the loader knows."""

    def position(path: str) -> Position:
        return loaded.position(undotted(path))

    return SpecError(
        replace(each, position=each.position or position(each.path)) for each in problem.problems
    )


def keep_lock(understood: Understood) -> bool:
    """Write the lock file if what must not move has grown; True if it was written.

    One atomic replacement. A rehearsal writes none: nothing it does is for good.
    """
    environment = understood.environment
    if environment.rehearsed or understood.lock == understood.kept:
        return False
    if not understood.kept and understood.lock == dump(Lock()):
        return False
    fresh = environment.lock_file.with_suffix(".new")
    fresh.write_text(understood.lock, encoding="utf-8")
    fresh.replace(environment.lock_file)
    return True
