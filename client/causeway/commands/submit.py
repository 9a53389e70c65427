"""``causeway run`` in the cluster."""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.text import Text

from causeway.cluster.blocked import missing_key, missing_secret
from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.fit import Fit, check_together, fit
from causeway.cluster.jobset import Repeated, Submission, jobset
from causeway.cluster.offer import Machine, Offer, mounts_of
from causeway.cluster.prices import Quote, hourly, quote
from causeway.cluster.runs import Run, find, submit, submit_all
from causeway.cluster.saved import recall
from causeway.cluster.store import Store
from causeway.code.source import NO_SOURCE, Source, source_of
from causeway.commands.describing import gone
from causeway.commands.logs import follow
from causeway.commands.packing import Packed, pack, write
from causeway.commands.repeating import repeated, show_differences
from causeway.commands.run import show_plan
from causeway.commands.wait import wait_for
from causeway.commands.waiting import before
from causeway.errors import CausewayError, DeclinedError, InputError, Problem
from causeway.job import Job, recorded, seeded, timed
from causeway.jobfile import LoadedJob, load
from causeway.kept import copy_seconds
from causeway.overview import OfCluster
from causeway.units import format_duration, format_size
from causeway.workers import workers_of

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")
_SHARED = ("name", "group", "code", "python")
_SHOWN = 20
"""Maximum number of runs listed for people."""


def run_in_cluster(
    loaded: LoadedJob,
    *,
    allow_secrets: bool,
    as_json: bool,
    dry_run: bool,
    detach: bool,
    waits: bool,
    yes: bool,
) -> int:
    """Submit a job and return the exit code. It follows the run unless ``detach`` is set; with ``waits`` it
    waits for its end. Asks for confirmation of costs, unless ``yes``."""
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    loaded = _seeded(loaded)
    cluster = ready(out)
    namespace, fits, packed = prepared(cluster, loaded, allow_secrets=allow_secrets)
    if dry_run:
        import yaml

        make = _maker(cluster, loaded, namespace, fits, packed, known_source(cluster, packed))
        made = make(f"{loaded.job.name}-1")
        print(yaml.safe_dump(made, sort_keys=False), end="")
        return 0
    name = _submit(out, cluster, loaded, namespace, fits, packed, yes=yes)
    if waits:
        out.print(Text.assemble((name, "bold"), f" submitted to {namespace}"))
        return wait_for(out, cluster, namespace, [name], as_json=as_json)
    return _submitted(out, cluster, namespace, name, packed.digest, as_json=as_json, detach=detach)


def run_each(
    file: str | None,
    options: Mapping[str, Any],
    parameters: Mapping[str, str],
    each: Mapping[str, Sequence[str]],
    *,
    allow_secrets: bool,
    as_json: bool,
    dry_run: bool,
    waits: bool,
    yes: bool,
) -> int:
    """Submit a run for each combination of the values of ``each`` and return the exit code; with ``waits``,
    wait for their ends. The code is uploaded once, and the user is asked once."""
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    if "array" not in each:
        first = load(Path(file) if file else None, options, {**parameters, **_first_of(each)}, alone=True)
        each = {**each, "array": first.tasks} if first.tasks else each
    chosen = [dict(zip(each, values, strict=True)) for values in itertools.product(*each.values())]
    if shared := [name for name in each if name.partition(".")[0] in _SHARED]:
        what = "must be the same for all runs of one command"
        raise InputError([Problem("--each", name, what) for name in shared])

    def job(values: Mapping[str, str]) -> LoadedJob:
        task = {"array": values["array"]} if "array" in values else {}
        given = {name: value for name, value in values.items() if name not in task}
        try:
            path = Path(file) if file else None
            return _seeded(load(path, {**options, **task}, {**parameters, **given}, alone=True))
        except InputError as error:
            as_each = {f"--set {name}": f"--each {name}" for name in each}
            named = [replace(one, where=as_each.get(one.where, one.where)) for one in error.problems]
            raise InputError(named) from None

    jobs = _all_of(job, chosen)
    if jobs[0].job.on:
        what = "several runs by one command need a cluster"
        hint = "on machines: causeway sweep FILE; in the cluster: --set on=[]"
        raise InputError([jobs[0].placed(Problem("job", "on", what, hint))])
    cluster = ready(out)
    all_fits = _all_of(lambda loaded: _placed(cluster, loaded)[1], jobs)
    namespace, fits, packed = prepared(cluster, jobs[0], allow_secrets=allow_secrets)

    base, source = jobs[0].job.name, known_source(cluster, packed)
    makes = [
        _maker(cluster, loaded, namespace, fits, packed, source)
        for loaded, fits in zip(jobs, all_fits, strict=True)
    ]
    if dry_run:
        import yaml

        made = [make(f"{base}-{at}") for at, make in enumerate(makes, 1)]
        print(yaml.safe_dump_all(made, sort_keys=False), end="")
        return 0
    _show(out, jobs[0], namespace, fits, cluster.offer, packed)
    wanted = ", ".join(f"{name} ({len(values)})" for name, values in each.items())
    out.print(f"  runs     {len(jobs)}: one for each of {wanted}; shown is the first")
    show_queue(out, cluster, namespace, jobs[0].job, fits)
    _agree(out, [(loaded.job, fits) for loaded, fits in zip(jobs, all_fits, strict=True)], yes=yes)
    if packed.digest:
        send(out, Store(cluster, namespace), packed)
    names: list[str] = []
    try:
        with out.status("submitting") as shown:
            for name in submit_all(cluster, namespace, base, makes):
                names.append(name)
                shown.update(f"submitted {len(names)} of {len(jobs)}")
    finally:
        _list_submitted(out, namespace, names, chosen, as_json=as_json and not waits)
    return wait_for(out, cluster, namespace, names, as_json=as_json) if waits else 0


def _first_of(each: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: values[0] for name, values in each.items()}


def _all_of(make: Callable[[_Given], _Made], given: Iterable[_Given]) -> list[_Made]:
    """Make an object of each combination. Raises InputError with all problems, each listed once."""
    problems: dict[Problem, None] = {}

    def tried(each: _Given) -> Iterator[_Made]:
        try:
            yield make(each)
        except InputError as error:
            problems.update(dict.fromkeys(error.problems))

    made = [one for each in given for one in tried(each)]
    if problems:
        raise InputError([*problems])
    return made


def _list_submitted(
    out: Console,
    namespace: str,
    names: Sequence[str],
    chosen: Sequence[Mapping[str, str]],
    *,
    as_json: bool,
) -> None:
    """Print the submitted runs with their parameters."""
    rows = [*zip(names, chosen, strict=False)]
    if as_json:
        print(json.dumps([{"run": name, "namespace": namespace, "set": values} for name, values in rows]))
        return
    for name, values in rows[:_SHOWN]:
        out.print(Text.assemble((name, "bold"), "  ", " ".join(f"{key}={values[key]}" for key in values)))
    if len(rows) > _SHOWN:
        out.print(f"… {names[-1]}")
    out.print(f"{len(rows)} of {len(chosen)} runs submitted to {namespace}")


def submit_detached(
    out: Console, fields: Mapping[str, Any], *, allow_secrets: bool, yes: bool
) -> tuple[Cluster, str, str]:
    """Submit a job with these fields and this folder's code; return the cluster, the namespace and the
    run."""
    loaded = _seeded(load(None, fields, {}))
    cluster = ready(out)
    namespace, fits, packed = prepared(cluster, loaded, allow_secrets=allow_secrets)
    return cluster, namespace, _submit(out, cluster, loaded, namespace, fits, packed, yes=yes)


def _seeded(loaded: LoadedJob) -> LoadedJob:
    """Return the job with a seed."""
    return replace(loaded, job=seeded(loaded.job))


def ready(out: Console) -> Cluster:
    """Return the cluster. Raises CausewayError if it does not accept runs."""
    cluster = Cluster()
    if cluster.offer.note:
        out.print(cluster.offer.note, style="yellow")
    if cluster.offer.tools is None:
        raise CausewayError("this cluster has no image to fetch code with; its spec needs `research.tools`")
    return cluster


def prepared(cluster: Cluster, loaded: LoadedJob, *, allow_secrets: bool) -> tuple[str, list[Fit], Packed]:
    """Return the namespace, the roles on the cluster's machines, and the code. Raises InputError with the
    place of each field."""
    namespace, fits = _placed(cluster, loaded)
    return namespace, fits, pack(loaded, limit=cluster.offer.code_limit, allow_secrets=allow_secrets)


def _placed(cluster: Cluster, loaded: LoadedJob) -> tuple[str, list[Fit]]:
    """Return the namespace and the roles on the cluster's machines. Raises InputError with the place of each
    field."""
    try:
        return _fitted(cluster, loaded)
    except InputError as error:
        raise InputError([loaded.placed(problem) for problem in error.problems]) from None


def _submission(
    cluster: Cluster,
    namespace: str,
    name: str,
    loaded: LoadedJob,
    fits: Sequence[Fit],
    digest: str,
    continues: Sequence[str] = (),
    repeats: Repeated | None = None,
    source: Source = NO_SOURCE,
) -> Submission:
    return Submission(
        name, namespace, cluster.person, loaded.job, fits, cluster.offer, digest, continues,
        loaded.parameters, repeats, source,
    )  # fmt: skip


def _maker(
    cluster: Cluster,
    loaded: LoadedJob,
    namespace: str,
    fits: Sequence[Fit],
    packed: Packed,
    source: Source,
) -> Callable[[str], Mapping[str, Any]]:
    """Return the function from a name to the object of a new run."""
    digest = packed.digest
    return lambda name: jobset(_submission(cluster, namespace, name, loaded, fits, digest, source=source))


def known_source(cluster: Cluster, packed: Packed) -> Source:
    """Return the commit of the code, if the cluster records it."""
    return source_of(packed.root) if packed.digest and cluster.offer.tracking else NO_SOURCE


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
    """Show the plan, ask for confirmation, upload the code, and create the run; return its name."""
    job = loaded.job
    _show(out, loaded, namespace, fits, cluster.offer, packed)
    show_queue(out, cluster, namespace, job, fits)
    _agree(out, [(job, fits)], yes=yes)
    if packed.digest:
        send(out, Store(cluster, namespace), packed)
    make = _maker(cluster, loaded, namespace, fits, packed, known_source(cluster, packed))
    return submit(cluster, namespace, job.name, make)


def rerun(name: str, group: str | None, *, exact: bool, as_json: bool, detach: bool, yes: bool) -> int:
    """Submit a run again with its original job and code, whatever the folder contains now.

    ``exact``: use the same image digest, packages and GPU model as well, and list what cannot be the same.
    """
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    cluster = Cluster()
    namespace = cluster.namespace(group)
    before = find(cluster, namespace, name)
    if before.code and not Store(cluster, namespace).keep_code(before.code):
        raise CausewayError(gone(name))
    job = recorded(before.job, before.name)
    repeats: Repeated | None = None
    differs: list[str] = []
    if exact:
        known = OfCluster(cluster, namespace, name).known()
        job, repeats, differs = repeated(known, cluster.offer)
        show_differences(out, name, differs)
    new = _submit_again(out, cluster, before, job, (), yes=yes, repeats=repeats)
    return _submitted(
        out, cluster, namespace, new, before.code, as_json=as_json, detach=detach, differs=differs
    )


def go_on(cluster: Cluster, before: Run, seconds: int | None, *, yes: bool) -> str:
    """Submit a run that continues from the checkpoints of one that has ended; return its name. ``seconds``:
    its maximum run time, instead of the job's ``time``."""
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    continues = (before.name, *before.continues)
    store = Store(cluster, before.namespace)
    if any(each.state in ("starting", "running") for each in before.workers):
        raise CausewayError(f"workers of {before.name} are still running and may save; try again in a moment")
    if not any(store.kept(each, "checkpoints/manifests/") for each in continues):
        raise CausewayError(
            f"{before.name} has left no checkpoint; causeway rerun {before.name} starts it from the beginning"
        )
    job = timed(recorded(before.job, before.name), seconds)
    return _submit_again(out, cluster, before, job, continues, yes=yes)


def _submit_again(
    out: Console,
    cluster: Cluster,
    before: Run,
    job: Job,
    continues: Sequence[str],
    *,
    yes: bool,
    repeats: Repeated | None = None,
) -> str:
    job, namespace = seeded(job), before.namespace
    loaded = LoadedJob(job, Path(), before.parameters)
    _, fits = _fitted(cluster, loaded)
    show_places(out, fits)
    show_queue(out, cluster, namespace, job, fits)
    _agree(out, [(job, fits)], yes=yes)
    return submit(
        cluster,
        namespace,
        job.name,
        lambda new: jobset(
            _submission(cluster, namespace, new, loaded, fits, before.code, continues, repeats)
        ),
    )


def _submitted(
    out: Console,
    cluster: Cluster,
    namespace: str,
    name: str,
    digest: str,
    *,
    as_json: bool,
    detach: bool,
    differs: Sequence[str] = (),
) -> int:
    out.print(Text.assemble((name, "bold"), f" submitted to {namespace}"))
    if not detach:
        return follow(out, cluster, namespace, name, as_json=as_json)
    if as_json:
        print(json.dumps({"run": name, "namespace": namespace, "code": digest, "differs": [*differs]}))
    else:
        out.print(f"  causeway logs -f {name}; causeway why {name}; causeway stop {name}")
    return 0


def _fitted(cluster: Cluster, loaded: LoadedJob) -> tuple[str, list[Fit]]:
    """Return the namespace and the roles on the cluster's machines. Raises InputError if the cluster cannot
    run the job."""
    job, offer = loaded.job, cluster.offer
    namespace = cluster.namespace(job.group)
    mounts_of(job, namespace, offer)
    if lacking := [*_lacking_secrets(cluster, namespace, job)]:
        raise InputError(lacking)
    image = offer.images.get(job.image or offer.default_image)
    workers = workers_of(job, image_launcher=image.launcher if image else None)
    fits = [fit(job, each, offer) for each in workers]
    check_together(job, fits)
    return namespace, fits


def _lacking_secrets(cluster: Cluster, namespace: str, job: Job) -> Iterator[Problem]:
    """Yield a problem for each missing Secret, or missing key of one, that workers need. Secrets that may not
    be read are not checked."""
    for secret, variable in job.secrets.items():
        try:
            found = cluster.find(f"/api/v1/namespaces/{namespace}/secrets/{secret}")
        except RefusedError as error:
            if error.code != 403:
                raise
            continue
        if found is None:
            yield Problem("job", f"secrets.{secret}", *missing_secret(namespace, secret, [variable]))
        elif variable not in found.get("data", {}):
            yield Problem("job", f"secrets.{secret}", *missing_key(namespace, secret, variable))


def _show(
    out: Console, loaded: LoadedJob, namespace: str, fits: Sequence[Fit], offer: Offer, packed: Packed
) -> None:
    """Print the plan: what runs, on which machines, at what price."""
    out.print(Text.assemble((loaded.job.name, "bold"), f" in {offer.cluster}, {namespace}"))
    show_plan(out, loaded, [each.workers for each in fits], packed)
    show_places(out, fits)


def show_places(out: Console, fits: Sequence[Fit]) -> None:
    for each in fits:
        out.print(Text(f"  {'on':<8} {_place(each)}"))


def show_queue(out: Console, cluster: Cluster, namespace: str, job: Job, fits: Sequence[Fit]) -> None:
    """Print what a run will find in the queue, and whether its grace period suffices for the checkpoints seen
    so far."""
    if line := before(cluster, namespace, job, fits):
        out.print(Text(f"  {'queue':<8} {line}"))
    seen = recall(cluster, namespace, job.name) if job.checkpoints.sync is not False else None
    if seen is not None and (took := copy_seconds(seen.size, seen.seconds)) > job.grace:
        longer = f"{seen.name} of {seen.run} is copied in {format_duration(took)}, longer than `grace`"
        lost = (
            f"({format_duration(job.grace)}): a checkpoint that is saved when the run is stopped may be lost"
        )
        out.print(Text(f"  {'grace':<8} {longer} {lost}", style="yellow"))


def quote_of(fits: Sequence[Fit]) -> Quote:
    return quote([(each.workers.count, each.workers.gpus.count, each.cpus, each.machines) for each in fits])


def _agree(out: Console, jobs: Sequence[tuple[Job, Sequence[Fit]]], *, yes: bool) -> None:
    """Print the total cost of the jobs, and ask for confirmation."""
    quotes = [quote_of(fits) for _, fits in jobs]
    most = sum(each.most * job.time / 3600 for each, (job, _) in zip(quotes, jobs, strict=True))
    agree(out, quotes, most, max((job.time for job, _ in jobs), default=0), yes=yes)


def agree(out: Console, quotes: Sequence[Quote], most: float, seconds: int, *, yes: bool) -> None:
    """Print the cost and ask for confirmation. Raises InputError without a terminal, DeclinedError if the
    user declines.

    ``quotes``: of runs that run at the same time. ``most``: maximum cost in USD, within ``seconds``.
    """
    found = [each for each in quotes if each.costs]
    if not found:
        return
    hourly_most, least = sum(each.most for each in found), sum(each.least for each in found)
    text = f"nothing to ${hourly_most:,.2f}/h" if not least else f"up to ${hourly_most:,.2f}/h"
    text += f", depending on where there is room; at most ${most:,.2f} in {format_duration(seconds)}"
    if unknown := {name: None for each in found for name in each.unknown}:
        text += f"; the price of {', '.join(unknown)} is unknown"
    out.print(f"  costs    {text}")
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        what = "it may cost money, and standard input is not a terminal"
        hint = "add --yes, set CAUSEWAY_YES=1, or restrict it to on-premises machines with where.sites"
        raise InputError([Problem("causeway run", "", what, hint)])
    if not click.confirm("submit it?", default=True, err=True):
        raise DeclinedError("not submitted")


def _place(found: Fit) -> str:
    """Format a placement: ``4 x (2 GPUs, 18 CPUs, 105.8 GiB): titan-x-pascal in rack-a, or v100 in us-west-2
    at $6.12/h``."""
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


def send(out: Console, store: Store, packed: Packed) -> None:
    """Upload the code unless the store has it."""
    if store.knows_code(packed.digest) or store.keep_code(packed.digest):
        return
    with tempfile.TemporaryFile() as archive:
        size = write(packed, archive)
        if sys.stderr.isatty() and size > 1 << 20:
            out.print(f"  sending {format_size(size)}")
        store.put_code(packed.digest, archive)
