"""Regions that left the spec: kept while Terraform's state has resources of them, or may get some from a
failed apply; then removed."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from infra.commands import session
from infra.commands.environment import Project, load_project
from infra.commands.rendering import write
from infra.commands.terminal import note

if TYPE_CHECKING:
    from infra.drive.lifecycle import Job


def settle(project: Project, job: Job, *, changeable: bool = False) -> tuple[Project, Job]:
    """The project and job, rendered again without the retired regions that have no resources left.

    The remaining resources of the others are added to the job, for plans limited to one region. This is
    decided by the state, so that a region that was planned but never applied is not kept, and a fresh clone
    gives the same result.
    """
    from infra.drive import lifecycle, retired_regions

    cluster = project.cluster
    if not cluster.retired:
        return project, job
    left = retired_regions.remains(lifecycle.stored(job), cluster.retired, lifecycle.begun(job.folders))
    gone = [region.name for region in cluster.retired if region.name not in left]
    if gone:
        session.forget_keys_of(project, gone, {**os.environ, **job.env})
        project = load_project(project.environment, changeable=changeable, gone=gone)
        write(project)
        job = replace(job, files=project.files, lock=project.lock, sites=session.modules(project.cluster))
        note(f"Nothing is left of {', '.join(gone)}: no longer rendered.")
    # A peering is between two sites, and is removed with the one that left.
    calls = {
        address.removeprefix("module."): site
        for site, addresses in left.items()
        for address in addresses
        if address.count(".") == 1
    }
    return project, replace(job, sites={**calls, **job.sites}, retired=left)
