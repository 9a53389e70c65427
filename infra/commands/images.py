"""Machine images: bake them, list them, throw away what nothing uses, and roll pools to new ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.commands.environment import Environment, Understood, read_lock
from infra.commands.terminal import note, say, say_json
from infra.errors import UsageError
from infra.nearest import meant_one_of

if TYPE_CHECKING:
    from infra.drive.aws import Aws
    from infra.drive.images.bake import Job, Ready
    from infra.model import Cluster
    from infra.model.machines import Image


def bake(
    understood: Understood,
    names: Sequence[str],
    *,
    everything: bool,
    dry_run: bool,
    on_demand: bool,
    subnet: str,
    ssh_from: str,
    json: bool,
) -> int:
    """Bake images whose inputs changed, and keep their ids in the lock file, each as soon as it is there."""
    from infra.commands import rendering
    from infra.drive.images import bake as baking
    from infra.drive.images import packer
    from infra.drive.images.phases import Progress

    images = _asked(understood.cluster, names, everything=everything)
    program = packer.find()
    job, aws = _job(understood, subnet=subnet, ssh_from=ssh_from)
    if not dry_run:
        _require_machines(understood)
    rendering.write(understood)
    ready = [baking.prepare(job, image, aws) for image in images]
    if dry_run:
        return _told(job, ready, json=json)
    baking.recover(job, aws, note)
    results = []
    for each in ready:
        baked = each.present is None
        amis = each.present or baking.bake(
            job, each, aws, program, Progress(each.image.name), spot=not on_demand
        )
        kept = _keep(understood, each.image.name, amis)
        results.append({**_row(job, each), "baked": baked, "images": dict(amis), "lock_changed": kept})
        if not json:
            what = "baked" if baked else "unchanged, not baked again"
            say(f"{each.image.name}: {what}")
            for region, ami in amis.items():
                say(f"  {region}  {ami}")
    if json:
        say_json(results)
    if any(result["lock_changed"] for result in results):
        note(
            f"{understood.environment.lock_file} holds the new ids: commit it. `invoke apply "
            f"{understood.environment.options}` puts them into launch templates, `invoke roll` replaces instances."
        )
    elif understood.environment.rehearsed:
        note("A rehearsal: the lock file is left as it is.")
    return 0


def _asked(cluster: Cluster, names: Sequence[str], *, everything: bool) -> list[Image]:
    if not cluster.regions:
        raise UsageError(f"{cluster.environment} has no AWS region: its machines need no images")
    known = [image.name for image in cluster.images]
    if everything:
        return list(cluster.images)
    if not names:
        raise UsageError(f"which image? --image {' or --image '.join(known)}, or --all")
    for name in names:
        if name not in known:
            raise UsageError(f"{name}: no such image in {cluster.environment}; {meant_one_of(name, known)}")
    return [cluster.image(name) for name in dict.fromkeys(names)]


def _job(understood: Understood, *, subnet: str = "", ssh_from: str = "") -> tuple[Job, Aws]:
    from infra.commands.world import credentials
    from infra.drive.aws import Aws
    from infra.drive.images.bake import Job
    from infra.drive.images.revision import revision

    environment, cluster = understood.environment, understood.cluster
    env = {**os.environ, **credentials(environment, cluster)}
    project = Path.cwd()
    job = Job(
        environment=environment.name,
        build=environment.build.absolute(),
        files=understood.files,
        regions=tuple(dict.fromkeys(region.region for region in cluster.regions)),
        project=project,
        env=env,
        revision=revision(project),
        options=environment.options,
        subnet=subnet,
        ssh_from=ssh_from,
        # An AWS on this machine answers at once.
        polling=1 if env.get("AWS_ENDPOINT_URL") else 15,
    )
    return job, Aws(env)


def _require_machines(understood: Understood) -> None:
    """``UsageError`` where instances are records alone: Packer would wait for SSH until its time is up."""
    from infra.commands.world import embedded_folder, is_embedded
    from infra.drive import localaws

    environment = understood.environment
    if not is_embedded(environment, understood.cluster):
        return
    server = localaws.status(embedded_folder(environment).absolute())
    if server is None or not server.control.health().get("machines"):
        raise UsageError(
            "instances of the embedded AWS are records with no machine behind them, so nothing can be baked there; "
            "set CAUSEWAY_MACHINES to a program that makes machines (docs/images.md) and start it anew with "
            f"`invoke local.down {environment.options}`, or look at what would be baked: --dry-run"
        )


def _row(job: Job, ready: Ready) -> dict[str, Any]:
    return {
        "image": ready.image.name,
        "inputs": ready.inputs.digest,
        "source": ready.inputs.source,
        "region": job.region,
        "regions": list(job.regions),
        "instance_type": ready.image.build_type,
        "cookbooks": dict(ready.inputs.cookbooks),
        "revision": job.revision,
    }


def _told(job: Job, ready: Sequence[Ready], *, json: bool) -> int:
    """What would be done."""
    if json:
        say_json([{**_row(job, each), "present": dict(each.present or {}) or None} for each in ready])
        return 0
    for each in ready:
        row = _row(job, each)
        say(f"{each.image.name}: {'would be baked' if each.present is None else 'is baked already'}")
        say(f"  inputs     {row['inputs'][:16]}")
        say(f"  from       {row['source']} ({each.image.source.name})")
        say(f"  on         {row['instance_type']} in {row['region']}")
        say(f"  copied to  {', '.join(job.regions[1:]) or 'no other region'}")
        for region, ami in (each.present or {}).items():
            say(f"  {region}  {ami}")
    return 0


def _keep(understood: Understood, image: str, amis: Any) -> bool:
    """Write an image's ids into the lock file, by one atomic replacement; True if that changed it.

    The file is read again under the lock: whatever else was decided meanwhile, which may be an hour, stays.
    """
    from infra.drive import workspace
    from infra.resolve.lockfile import dump, parse

    environment = understood.environment
    if environment.rehearsed:
        return False
    ids = {region.name: amis[region.region] for region in understood.cluster.regions}
    with workspace.locked(environment.build, timeout=60):
        before = read_lock(environment)
        lock = parse(before, str(environment.lock_file))
        after = dump(replace(lock, images={**lock.images, image: ids}))
        if after == before:
            return False
        _replace(environment, after)
    return True


def _replace(environment: Environment, text: str) -> None:
    fresh = environment.lock_file.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(environment.lock_file)
