"""Applying the saved plan of a job, and reading its state."""

from __future__ import annotations

from collections.abc import Iterable

from infra.drive import lifecycle
from infra.drive.lifecycle import Job
from infra.drive.saved_plan import load
from infra.drive.terraform import Listener


def apply_saved(
    job: Job, *, named: Iterable[str] = (), listener: Listener | None = None
) -> lifecycle.Outcome:
    """Apply what was planned last, as ``invoke apply`` does in a process of its own."""
    saved = load(job.folders)
    assert saved is not None, "nothing was planned"
    return lifecycle.apply(job, saved, named=named, listener=listener)


def in_state(job: Job) -> list[str]:
    """The addresses of the resources in the state."""
    modules = [job.terraform().show().get("values", {}).get("root_module", {})]
    addresses: list[str] = []
    for module in modules:
        addresses += [resource["address"] for resource in module.get("resources", ())]
        modules += module.get("child_modules", ())
    return addresses
