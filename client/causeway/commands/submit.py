"""``causeway run`` in the cluster."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from causeway.cluster.connection import Cluster
from causeway.cluster.fit import Fit, fit
from causeway.cluster.jobset import Submission, jobset
from causeway.cluster.offer import Machine, Offer, mounts_of
from causeway.cluster.prices import Quote, hourly, quote
from causeway.cluster.runs import find, submit
from causeway.cluster.store import Store
from causeway.code.archive import write_archive
from causeway.commands.logs import follow
from causeway.commands.packing import Packed, pack
from causeway.commands.run import show_plan
from causeway.commands.waiting import before
from causeway.errors import CausewayError, DeclinedError, InputError, Problem
from causeway.job import Job
from causeway.jobfile import LoadedJob, load
from causeway.units import format_duration, format_size
from causeway.workers import workers_of


def run_in_cluster(
    file: str | None,
    options: Mapping[str, Any],
    parameters: Mapping[str, str],
    *,
    allow_secrets: bool,
    as_json: bool,
    dry_run: bool,
    detach: bool,
    yes: bool,
) -> int:
    """Submits a job, and follows it unless ``detach``; returns the exit code. Asks where it may cost money,
    unless ``yes``."""
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    loaded = load(Path(file) if file else None, options, parameters)
    cluster = _ready(out)
    namespace, fits, packed = _prepared(cluster, loaded, allow_secrets=allow_secrets)
    if dry_run:
        import yaml

        made = jobset(
            _submission(cluster, namespace, f"{loaded.job.name}-1", loaded.job, fits, packed.digest)
        )
        print(yaml.safe_dump(made, sort_keys=False), end="")
        return 0
    name = _submit(out, cluster, loaded, namespace, fits, packed, yes=yes)
    return _submitted(out, cluster, namespace, name, packed.digest, as_json=as_json, detach=detach)


def submit_detached(
    out: Console, fields: Mapping[str, Any], *, allow_secrets: bool, yes: bool
) -> tuple[Cluster, str, str]:
    """Submits a job of these fields, with this folder's code; returns the cluster, namespace and run."""
    loaded = load(None, fields, {})
    cluster = _ready(out)
    namespace, fits, packed = _prepared(cluster, loaded, allow_secrets=allow_secrets)
    return cluster, namespace, _submit(out, cluster, loaded, namespace, fits, packed, yes=yes)


def _ready(out: Console) -> Cluster:
    """The cluster. CausewayError for one that takes no runs."""
    cluster = Cluster()
    if cluster.offer.note:
        out.print(cluster.offer.note, style="yellow")
    if cluster.offer.tools is None:
        raise CausewayError("this cluster has no image to fetch code with; its spec needs `research.tools`")
    return cluster


def _prepared(cluster: Cluster, loaded: LoadedJob, *, allow_secrets: bool) -> tuple[str, list[Fit], Packed]:
    """The namespace, the roles on the cluster's machines, the code. InputError with where each field is."""
    try:
        namespace, fits = _fitted(cluster, loaded)
    except InputError as error:
        raise InputError([loaded.placed(problem) for problem in error.problems]) from None
    return namespace, fits, pack(loaded, limit=cluster.offer.code_limit, allow_secrets=allow_secrets)


def _submission(
    cluster: Cluster, namespace: str, name: str, job: Job, fits: Sequence[Fit], digest: str
) -> Submission:
    return Submission(name, namespace, cluster.person, job, fits, cluster.offer, digest)


def _submit(
    out: Console,
    cluster: Cluster,
    loaded: LoadedJob,
    namespace: str,
    fits: Sequence[Fit],
    packed: Packed,
    *,
    yes: bool,
) -> str:
    """Shows the plan, asks, sends the code, makes the run; returns its name."""
    job = loaded.job
    _show(out, loaded, namespace, fits, cluster.offer, packed)
    _show_queue(out, cluster, namespace, job, fits)
    _agree(out, job, fits, yes=yes)
    if packed.digest:
        _send(out, Store(cluster, namespace), packed)
    return submit(
        cluster,
        namespace,
        job.name,
        lambda name: jobset(_submission(cluster, namespace, name, job, fits, packed.digest)),
    )


def rerun(name: str, group: str | None, *, as_json: bool, detach: bool, yes: bool) -> int:
    """Submits a run once more: its job and its code, whatever the folder has become."""
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    cluster = Cluster()
    namespace = cluster.namespace(group)
    before = find(cluster, namespace, name)
    job = Job.model_validate(before.job)
    _, fits = _fitted(cluster, LoadedJob(job, Path()))
    if before.code and not Store(cluster, namespace).has_code(before.code):
        raise CausewayError(f"the code of {name} is not in the store any more; submit it from a folder")
    _show_places(out, fits)
    _show_queue(out, cluster, namespace, job, fits)
    _agree(out, job, fits, yes=yes)

    new = submit(
        cluster,
        namespace,
        job.name,
        lambda new: jobset(_submission(cluster, namespace, new, job, fits, before.code)),
    )
    return _submitted(out, cluster, namespace, new, before.code, as_json=as_json, detach=detach)


def _submitted(
    out: Console, cluster: Cluster, namespace: str, name: str, digest: str, *, as_json: bool, detach: bool
) -> int:
    out.print(Text.assemble((name, "bold"), f" submitted to {namespace}"))
    if not detach:
        return follow(out, cluster, namespace, name, as_json=as_json)
    if as_json:
        print(json.dumps({"run": name, "namespace": namespace, "code": digest}))
    else:
        out.print(f"  causeway logs -f {name}; causeway why {name}; causeway stop {name}")
    return 0


def _fitted(cluster: Cluster, loaded: LoadedJob) -> tuple[str, list[Fit]]:
    """The namespace, and the roles on the cluster's machines. InputError for what the cluster can't do."""
    job, offer = loaded.job, cluster.offer
    namespace = cluster.namespace(job.group)
    mounts_of(job, namespace, offer)
    image = offer.images.get(job.image or offer.default_image)
    workers = workers_of(job, image_launcher=image.launcher if image else "none")
    return namespace, [fit(job, each, offer) for each in workers]


def _show(
    out: Console, loaded: LoadedJob, namespace: str, fits: Sequence[Fit], offer: Offer, packed: Packed
) -> None:
    """The plan: what runs, on what, and what that costs."""
    out.print(Text.assemble((loaded.job.name, "bold"), f" in {offer.cluster}, {namespace}"))
    show_plan(out, loaded, [each.workers for each in fits], packed)
    _show_places(out, fits)


def _show_places(out: Console, fits: Sequence[Fit]) -> None:
    for each in fits:
        out.print(Text(f"  {'on':<8} {_place(each)}"))


def _show_queue(out: Console, cluster: Cluster, namespace: str, job: Job, fits: Sequence[Fit]) -> None:
    if line := before(cluster, namespace, job, fits):
        out.print(Text(f"  {'queue':<8} {line}"))


def _quote(fits: Sequence[Fit]) -> Quote:
    return quote([(each.workers.count, each.workers.gpus.count, each.cpus, each.machines) for each in fits])


def _agree(out: Console, job: Job, fits: Sequence[Fit], *, yes: bool) -> None:
    """Says what it may cost, and asks. InputError where nobody can be asked, DeclinedError for a no."""
    found = _quote(fits)
    if not found.costs:
        return
    most = found.most * job.time / 3600
    text = f"nothing to ${found.most:,.2f}/h" if not found.least else f"up to ${found.most:,.2f}/h"
    text += f", depending on where there is room; at most ${most:,.2f} in {format_duration(job.time)}"
    if found.unknown:
        text += f"; the price of {', '.join(found.unknown)} is not known"
    out.print(f"  costs    {text}")
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        what = "it may cost money, and there is no terminal to ask at"
        hint = "add --yes, set CAUSEWAY_YES=1, or keep it to machines of the lab's own with where.sites"
        raise InputError([Problem("causeway run", "", what, hint)])
    if not click.confirm("submit it?", default=True, err=True):
        raise DeclinedError("not submitted")


def _place(found: Fit) -> str:
    """``4 x (2 GPUs, 18 CPUs, 105.8 GiB): titan-x-pascal in rack-a, or v100 in us-west-2 at $6.12/h``."""
    workers, gpus = found.workers, found.workers.gpus.count
    amounts = f"{found.cpus:g} CPUs, {format_size(found.memory)}"
    one = f"{gpus} GPU{'s' if gpus > 1 else ''}, {amounts}" if gpus else amounts
    places: dict[str, None] = {}
    for machine in found.machines:
        model = machine.gpus.model if machine.gpus and gpus else machine.pool or "own machines"
        places.setdefault(f"{model} in {machine.site}{_price(found, machine)}")
    shown = list(places)[:3]
    more = f" or {len(places) - 3} more" if len(places) > 3 else ""
    return f"{workers.count} x ({one}): {', '.join(shown)}{more}"


def _price(found: Fit, machine: Machine) -> str:
    price = hourly(machine, found.workers.gpus.count, found.cpus)
    return f" at ${price * found.workers.count:,.2f}/h" if price else ""


def _send(out: Console, store: Store, packed: Packed) -> None:
    """Send the code unless it is there."""
    if store.has_code(packed.digest):
        return
    with tempfile.TemporaryFile() as archive:
        if write_archive(packed.root, packed.entries, archive) != packed.digest:
            raise CausewayError(f"{packed.root} changed while it was packed; run it again")
        size = archive.tell()
        archive.seek(0)
        if sys.stderr.isatty() and size > 1 << 20:
            out.print(f"  sending {format_size(size)}")
        store.put_code(packed.digest, archive)
