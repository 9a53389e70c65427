"""``sweep``: submits, stops, resumes and extends a search in the cluster."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from causeway.cluster import runs, sweeps
from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.jobset import jobset
from causeway.cluster.labels import SWEEP
from causeway.cluster.mlflow import Mlflow, refused
from causeway.cluster.store import Store
from causeway.cluster.sweeps import ACCOUNT, Order
from causeway.commands import submit
from causeway.commands.run import show_plan
from causeway.commands.sweep_results import Found, described
from causeway.commands.sweep_show import show
from causeway.errors import CausewayError, InputError, Problem, UnreachableError
from causeway.job import seeded
from causeway.jobfile import LoadedJob, load
from causeway.search.space import drawn
from causeway.sweeping import trial_of
from causeway.tracking import searches
from causeway.tracking.searches import Ledger, Whole
from causeway.tracking.sending import AwayError
from causeway.tracking.writes import CREATE

_LONGEST_NAME = 36
"""Of the job's name in a search: names of its trials' pods contain both numbers, and have at most 63
characters."""
_AT_ONCE = 8
_ANSWERS = 60.0
"""Seconds to wait for MLflow: its first answer is slow if it, or this laptop, is busy."""
_PATIENCE = 60.0
"""Seconds to wait for a conductor to end."""


class Searches:
    """The searches of a namespace, as seen by a user."""

    def __init__(self, cluster: Cluster, group: str | None) -> None:
        """Raises CausewayError if the cluster has no MLflow, which records searches."""
        self.cluster = cluster
        self.again = "causeway rerun" + (f" --group {group}" if group else "")
        """The command that repeats a trial."""
        self.namespace = cluster.namespace(group)
        if cluster.offer.tracking is None:
            raise CausewayError(
                "a search is recorded in MLflow, and this cluster has none; ask its engineers for "
                "`kubernetes.tracking`, or run it on this machine: causeway sweep --local FILE"
            )
        self._mlflow = Mlflow(cluster, self.namespace)

    def call(self, method: str, call: str, body: Any = None) -> Any:
        """Call MLflow. Raises CausewayError, UnreachableError; RejectedError if the object does not exist."""
        try:
            return self._mlflow.server.call(method, call, body, _ANSWERS)
        except RefusedError as error:
            raise refused(error) from None
        except AwayError as error:
            # The server may have created it although no answer arrived: do not retry.
            if call == CREATE:
                raise UnreachableError(f"MLflow does not answer: {error}; causeway sweep show") from None
            return self._mlflow.call(method, call, body)

    def find(self, name: str) -> Whole:
        """Return a search. Raises CausewayError if it does not exist."""
        found = searches.find(self.call, name)
        if found is None:
            raise CausewayError(f"{self.namespace} has no search {name}; causeway sweep show lists them")
        return found

    def conduct(self, whole: Whole) -> None:
        """Start a conductor, unless one is running."""
        path = sweeps.job_path(self.namespace, whole.name)
        found = self.cluster.find(path)
        if found is not None and not _has_ended(found) and not found["metadata"].get("deletionTimestamp"):
            return
        if found is not None:
            self.dismiss(whole.name)
        tracking = self.cluster.offer.tracking
        assert tracking is not None
        person = str(whole.order["person"])
        made = sweeps.conductor(self.namespace, whole.name, whole.id, person, self.cluster.offer, tracking)
        self.cluster.call("POST", path.rpartition("/")[0], made)

    def dismiss(self, name: str) -> None:
        """Delete a conductor and wait until it is gone."""
        path = sweeps.job_path(self.namespace, name)
        until = time.monotonic() + _PATIENCE
        if self.cluster.find(path) is None:
            return
        self.cluster.call("DELETE", path, {"propagationPolicy": "Foreground"})
        while self.cluster.find(path) is not None:
            if time.monotonic() > until:
                raise CausewayError(
                    f"the conductor of {name} does not stop; kubectl -n {self.namespace} get jobs,pods"
                )
            time.sleep(0.5)


def sweep_in_cluster(
    loaded: LoadedJob, *, allow_secrets: bool, as_json: bool, dry_run: bool, yes: bool
) -> int:
    """Submit a search; return the exit code. Asks for confirmation of costs, unless ``yes``."""
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    job = loaded.job
    assert job.sweep is not None
    cluster = submit.ready(out)
    namespace, fits, packed = submit.prepared(cluster, loaded, allow_secrets=allow_secrets)
    source = submit.known_source(cluster, packed)
    order = Order(f"{job.name}-s1", job, packed.digest, cluster.person, source)
    tried = drawn(job.sweep.parameters, random.Random(job.sweep.seed))  # noqa: S311  no secret
    first = sweeps.submission(order, namespace, cluster.offer, "", 1, tried)
    found = Searches(cluster, job.group)
    if dry_run:
        import yaml

        tracking = cluster.offer.tracking
        assert tracking is not None
        conductor = sweeps.conductor(namespace, order.name, "", order.person, cluster.offer, tracking)
        print(yaml.safe_dump_all([conductor, jobset(first)], sort_keys=False), end="")
        return 0
    _check_account(cluster, namespace)
    out.print(Text.assemble((job.name, "bold"), f" in {cluster.offer.cluster}, {namespace}"))
    show_plan(out, replace(loaded, job=first.job), [each.workers for each in fits], packed)
    submit.show_places(out, fits)
    for line in described(job):
        out.print(Text(line))
    submit.show_queue(out, cluster, namespace, job, fits)
    quote = submit.quote_of(fits)
    together = min(job.sweep.parallel, job.sweep.trials)
    most = quote.most * job.time / 3600 * job.sweep.trials
    submit.agree(out, [quote] * together, most, job.time * -(-job.sweep.trials // together), yes=yes)
    if packed.digest:
        submit.send(out, Store(cluster, namespace), packed)
    whole = _begun(found, order, job.tracking.experiment or job.name)
    found.conduct(whole)
    if as_json:
        print(json.dumps({"sweep": whole.name, "namespace": namespace, "code": packed.digest}))
    else:
        out.print(Text.assemble((whole.name, "bold"), f" submitted to {namespace}"))
        out.print(f"  causeway sweep show {whole.name}; causeway sweep stop {whole.name}")
    return 0


def loaded_search(file: str, options: Mapping[str, Any], parameters: Mapping[str, str]) -> LoadedJob:
    """Load a job with a search, and set its seed. Raises InputError if it has no search, or if no trial can
    be made from it."""
    loaded = load(Path(file), options, parameters, search=True)
    job = loaded.job
    if len(job.name) > _LONGEST_NAME:
        what = f"{job.name} is longer than {_LONGEST_NAME} characters, and names of trials are longer"
        raise InputError([loaded.placed(Problem(file, "name", what))])
    return replace(loaded, job=seeded(job))


def name_of_search(name: str) -> bool:
    """Whether a name may be that of a search: ``resnet-s1``."""
    head, _, number = name.rpartition("-s")
    return bool(head) and number.isdigit()


def why_search(cluster: Cluster, name: str, group: str | None, *, as_json: bool) -> int:
    """Print why a search is waiting, or has ended."""
    found = Searches(cluster, group)
    whole = found.find(name)
    seen = look(found, whole)
    failed = next((each for each in seen.trials if each.state == "failed"), None)
    waits = ""
    if whole.state in ("running", "resumed"):
        waits = sweeps.waits_for(cluster, found.namespace, name)
    if as_json:
        first = None if failed is None else {"run": seen.run(failed), "cause": failed.cause}
        print(json.dumps({"sweep": name, "state": whole.state, "reason": whole.reason, "waits_for": waits,
                          "first_failure": first}))  # fmt: skip
        return 0
    print(f"{name} {whole.state}{f': {whole.reason}' if whole.reason else ''}")
    if waits:
        print(f"  {waits}")
    if failed is not None:
        print(f"  {seen.run(failed)} failed first: {failed.cause}; causeway why {seen.run(failed)}")
    return 0


def _check_account(cluster: Cluster, namespace: str) -> None:
    """Raise CausewayError if the conductor's permissions have not been rendered yet."""
    if cluster.find(f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}") is None:
        raise CausewayError(
            f"{namespace} has no service account {ACCOUNT}; your engineers have to run `invoke cluster.up`"
        )


def _begun(found: Searches, order: Order, experiment: str) -> Whole:
    """Record a search under the next free name."""
    base = order.job.name
    numbers = [int(name.rpartition("-s")[2]) for name in searches.names(found.call, base)
               if name.startswith(f"{base}-s") and name.rpartition("-s")[2].isdigit()]  # fmt: skip
    name = f"{base}-s{max(numbers, default=0) + 1}"
    # Trials of a search whose record was deleted keep its name.
    while next(
        runs.items(
            found.cluster, runs.path_of(found.namespace), only="metadata", labelSelector=f"{SWEEP}={name}"
        ),
        None,
    ):
        name = f"{base}-s{int(name.rpartition('-s')[2]) + 1}"
    tags = {"causeway.person": order.person, "mlflow.user": order.person, "causeway.diff": order.source.diff,
            "mlflow.source.git.commit": order.source.commit}  # fmt: skip
    given = {key: value for key, value in tags.items() if value}
    return searches.begin(found.call, name, experiment, order.plain(), given)


def stop(name: str, group: str | None, *, as_json: bool) -> int:
    """Stop a search and its trials. They keep their records, and continue when it is resumed."""
    found = Searches(Cluster(), group)
    whole = found.find(name)
    changed = whole.state in ("running", "resumed")
    if changed:
        Ledger(found.call, whole.id).change("stopped", "stopped by a user")
    found.dismiss(name)
    stopped = _stop_trials(found, name) if changed else 0
    if as_json:
        print(json.dumps({"sweep": name, "changed": changed, "stopped": stopped}))
    elif changed:
        print(f"{name} is stopped, with {stopped} trials that ran or waited")
    else:
        print(f"{name} is {whole.state} already")
    return 0


def _stop_trials(found: Searches, name: str) -> int:
    chosen = {"labelSelector": f"{SWEEP}={name}"}
    uids = [
        each["metadata"]["uid"]
        for each in runs.items(found.cluster, runs.path_of(found.namespace), **chosen)
        if not runs.has_ended(each)
    ]
    workloads = runs.workloads_with(found.cluster, found.namespace, uids)
    active = [each for each in workloads.values() if each["spec"].get("active", True)]

    def one(workload: Any) -> None:
        runs.set_active(found.cluster, found.namespace, workload, active=False)

    with ThreadPoolExecutor(_AT_ONCE) as together:
        return len([*together.map(one, active)])


def resume(name: str, group: str | None, *, as_json: bool) -> int:
    """Resume a search that was stopped or has failed; trials continue from their checkpoints."""
    return _go_on(name, group, None, as_json=as_json)


def extend(name: str, group: str | None, trials: int, *, as_json: bool) -> int:
    """Raise the number of trials of a search; a finished search continues."""
    return _go_on(name, group, trials, as_json=as_json)


def _go_on(name: str, group: str | None, trials: int | None, *, as_json: bool) -> int:
    found = Searches(Cluster(), group)
    whole = found.find(name)
    order = Order.of(whole)
    sweep = order.engine(whole).sweep
    if trials is not None and trials <= sweep.trials:
        raise InputError([Problem("--trials", "", f"{trials}: {name} already allows {sweep.trials}")])
    if trials is None and whole.state == "done":
        raise CausewayError(
            f"{name} is done: {whole.reason}; causeway sweep extend {name} --trials {2 * sweep.trials}"
        )
    if order.code and not Store(found.cluster, found.namespace).keep_code(order.code):
        raise CausewayError(f"the code of {name} is not in the store any more; submit it from a folder")
    _check_account(found.cluster, found.namespace)
    goes_on = whole.state == "running"
    state = "running" if goes_on or whole.state == "done" else "resumed"
    ledger = Ledger(found.call, whole.id)
    since = (
        max((row.number for row in ledger.rows(whole.experiment, sweep.metric)), default=0)
        if whole.state == "failed"
        else None
    )
    ledger.change(state, trials=trials, since=since)
    found.conduct(whole)
    if as_json:
        print(json.dumps({"sweep": name, "changed": not goes_on or trials is not None}))
    elif trials is not None:
        print(f"{name} continues, up to {trials} trials")
    else:
        print(f"{name} is running already" if goes_on else f"{name} continues")
    return 0


def _has_ended(job: Any) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    over = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")
    return any(each["type"] in over and each["status"] == "True" for each in conditions)


def show_in_cluster(
    name: str | None, group: str | None, *, everything: bool, watch: bool, page: str | None, as_json: bool
) -> int:
    """Show a search of the cluster, or list all searches of a namespace."""
    found = Searches(Cluster(), group)
    if name is None:
        return _list(found, as_json=as_json)
    return show(
        lambda: look(found, found.find(name)), everything=everything, watch=watch, page=page, as_json=as_json
    )


def look(found: Searches, whole: Whole) -> Found:
    """Read a search with its trials from the record."""
    order = Order.of(whole)
    engine = order.engine(whole)
    rows = Ledger(found.call, whole.id).rows(whole.experiment, engine.sweep.metric)
    return Found(
        whole.name, found.namespace, order.person, whole.state, whole.reason, whole.started,
        engine, [trial_of(row) for row in rows], whole.summary, found.again,
    )  # fmt: skip


def _list(found: Searches, *, as_json: bool) -> int:
    rows = [
        {"sweep": each.name, "state": each.state, "person": each.order["person"], "reason": each.reason,
         "trials": sum(each.summary.get("counts", {}).values())}
        for each in searches.all_of(found.call)
    ]  # fmt: skip
    if as_json:
        print(json.dumps(rows))
    for row in () if as_json else rows:
        print(f"{row['sweep']}  {row['state']}  {row['trials']} trials, by {row['person']}")
    return 0
