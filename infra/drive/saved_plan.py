"""The saved plan: its inputs, and whether they are still current."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from infra.drive.build_folders import Folders
from infra.drive.pool_instances import Ending
from infra.drive.undeclared.model import Call, Undeclared
from infra.drive.unfinished.model import Creation
from infra.errors import StalePlanError

_PLAN = "plan.tfplan"
_ABOUT = "plan.json"
_VERSION: Final = 2
"""The version of the description's format: a plan of another version cannot be used."""


@dataclass(frozen=True, slots=True)
class StatePosition:
    """The version of the state that a plan was made against. Terraform increments the serial at each
    change."""

    lineage: str
    """Empty if there was no state yet."""
    serial: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a plan, as hashes or other texts that change with the input."""

    files: str
    """`infra.drive.workspace.fingerprint` of the files rendered for Terraform."""
    spec: str
    lock: str
    engine: str
    """``terraform 1.11.4``."""
    providers: str
    """A hash of the provider lock file."""


@dataclass(frozen=True, slots=True)
class Protected:
    """A stateful resource that the plan replaces or destroys."""

    address: str
    action: str
    loss: str
    reason: str


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan on disk, with its inputs."""

    environment: str
    kind: str
    """``apply`` or ``destroy``."""
    made: str
    """When it was made: ISO 8601, UTC."""
    inputs: Inputs
    state: StatePosition | None
    """None for a state that cannot be read cheaply (S3): Terraform compares it itself."""
    root: str
    """The folder it was planned in, relative to the build folder."""
    named: tuple[str, ...]
    """The resources that the user agreed to lose when it was planned."""
    protected: tuple[Protected, ...]
    counts: Mapping[str, int]
    has_changes: bool
    only: tuple[str, ...] = ()
    """The sites that it is limited to; empty for all."""
    pending: bool = False
    """Whether it was made to be shown before a prompt: only the run that made it may apply it."""
    undeclared: tuple[Undeclared, ...] = ()
    """Undeclared settings that this apply removes."""
    leaving: tuple[str, ...] = ()
    """The addresses of resources that are destroyed, replaced or forgotten."""
    absent: tuple[str, ...] = ()
    """The addresses without a resource in AWS when it was made, whatever the state says."""
    drifted: tuple[Mapping[str, Any], ...] = ()
    """Drift that it leaves in place (`infra.drive.drift.Row`)."""
    creating: tuple[Creation, ...] = ()
    """The resources that it creates, of the types that `infra.drive.unfinished` can find again."""
    ending: tuple[Ending, ...] = ()
    """The groups that it destroys or replaces, with their instances at that time."""
    sha256: str = ""
    """The hash of the plan file."""


def save(folders: Folders, saved: SavedPlan, plan_file: Path) -> SavedPlan:
    """Save ``plan_file`` (by moving it) and its description, replacing the previous plan."""
    told = replace(saved, sha256=_sha256(plan_file))
    folders.plan.mkdir(parents=True, exist_ok=True)
    # The description is deleted first and written last: a plan without one is not valid.
    (folders.plan / _ABOUT).unlink(missing_ok=True)
    plan_file.replace(folders.plan / _PLAN)
    fresh = folders.plan / f"{_ABOUT}.new"
    fresh.write_text(json.dumps({"version": _VERSION, **asdict(told)}, indent=1) + "\n", encoding="utf-8")
    fresh.replace(folders.plan / _ABOUT)
    return told


def _ending(told: dict[str, Any]) -> Ending:
    lists = {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
    return Ending(**{**told, **lists})


def load(folders: Folders) -> SavedPlan | None:
    """The saved plan, or None if there is none (that can be used)."""
    try:
        told = json.loads((folders.plan / _ABOUT).read_text(encoding="utf-8"))
        if told.pop("version") != _VERSION:
            return None
        told["inputs"] = Inputs(**told["inputs"])
        told["state"] = StatePosition(**told["state"]) if told["state"] else None
        told["protected"] = tuple(Protected(**one) for one in told["protected"])
        told["ending"] = tuple(_ending(one) for one in told["ending"])
        told["named"] = tuple(told["named"])
        told["only"] = tuple(told["only"])
        told["undeclared"] = tuple(
            Undeclared(**{**one, "removal": Call(**one["removal"])}) for one in told["undeclared"]
        )
        told["leaving"] = tuple(told["leaving"])
        told["absent"] = tuple(told.get("absent", ()))
        told["drifted"] = tuple(told.get("drifted", ()))
        told["creating"] = tuple(Creation(**one) for one in told.get("creating", ()))
        return SavedPlan(**told)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None


def plan_file(folders: Folders) -> Path:
    """The path of Terraform's plan file."""
    return folders.plan / _PLAN


def discard(folders: Folders) -> None:
    """Delete the plan: it was applied, or is invalid."""
    (folders.plan / _ABOUT).unlink(missing_ok=True)
    shutil.rmtree(folders.plan, ignore_errors=True)


def check(
    folders: Folders, saved: SavedPlan, inputs: Inputs, state: StatePosition | None, *, options: str
) -> None:
    """Raise `StalePlanError`, with what changed since, unless the plan may be applied now.

    ``options`` select the environment on a command line: ``--env lab``.
    """
    moved = []
    if saved.inputs.spec != inputs.spec:
        moved.append("the spec has changed")
    if saved.inputs.lock != inputs.lock:
        moved.append("the spec's lock file has changed")
    if saved.inputs.files != inputs.files and not moved:
        moved.append("the rendered files have changed")
    if saved.inputs.providers != inputs.providers:
        moved.append("the provider lock file has changed")
    if saved.inputs.engine != inputs.engine:
        moved.append(f"it was made by {saved.inputs.engine}, and {inputs.engine} would apply it")
    if saved.state is not None and state is not None and saved.state != state:
        if saved.state.lineage and state.lineage and saved.state.lineage != state.lineage:
            moved.append("the state is a different one")
        else:
            moved.append(
                f"the state has moved on, from serial {saved.state.serial} to {state.serial}: "
                "somebody applied something"
            )
    path = plan_file(folders)
    if not moved and (not path.exists() or _sha256(path) != saved.sha256):
        moved.append(f"{path} is not the file that was saved")
    if moved:
        raise stale(saved, "; ".join(moved), options)


def stale(saved: SavedPlan, why: str, options: str) -> StalePlanError:
    """The error for a plan that cannot be applied any more."""
    command = f"{again(saved.kind)} {options}"
    return StalePlanError(f"the plan of {saved.made} can't be applied: {why}. Run `{command}` and review it.")


def again(kind: str) -> str:
    """The command that makes a new plan of that kind."""
    return "invoke destroy" if kind == "destroy" else "invoke plan"


def local_state(folders: Folders) -> Path | None:
    """The path of the state with a local backend; None for any other backend.

    Terraform records its backend in TF_DATA_DIR/terraform.tfstate.
    """
    try:
        backend = json.loads((folders.data / "terraform.tfstate").read_text(encoding="utf-8"))["backend"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        backend = {"type": "local", "config": {}}
    if not backend or backend.get("type") != "local":
        return None
    return folders.root / (backend.get("config", {}).get("path") or "terraform.tfstate")


def state_position(folders: Folders) -> StatePosition | None:
    """Serial and lineage of the state with a local backend; None for any other."""
    path = local_state(folders)
    if path is None:
        return None
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        return StatePosition(str(state["lineage"]), int(state["serial"]))
    except FileNotFoundError:
        return StatePosition("", 0)
    except (ValueError, KeyError, TypeError):
        return None


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
