"""A search in MLflow: a run for the whole, and below it a run for each trial. It is the only record.

Tags, of the whole:

- ``causeway.sweep``: its name; ``causeway.sweep.state``: ``STATES``; ``causeway.sweep.reason``
- ``causeway.sweep.trials``: how many trials it may have in all, where that was extended;
  ``causeway.sweep.since``: failures up to this trial do not count, as a person has resumed it after them
- ``causeway.sweep.order.0`` and on: JSON, what was submitted, in parts that are short enough for a tag
- ``causeway.sweep.summary``: JSON, for those who look

Of a trial: ``causeway.sweep``, ``causeway.trial``: its number; ``.parameters``: JSON; ``.state``,
``.judged``, ``.cause``; and ``causeway.id``, by which the sidecar of its pod finds the run and logs to it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from causeway.tracking.record import CHECKPOINT, LONGEST_TAG, OURS
from causeway.tracking.sending import experiment_of
from causeway.tracking.writes import BATCH, CREATE, ID

SWEEP = f"{OURS}sweep"
STATES = ("running", "resumed", "stopped", "done", "failed")
"""``resumed`` follows ``stopped``: trials that were stopped with the search should continue."""
_STATE, _REASON, _TRIALS, _SINCE, _SUMMARY = (
    f"{SWEEP}.{name}" for name in ("state", "reason", "trials", "since", "summary")
)
_ORDER = f"{SWEEP}.order."
_TRIAL = f"{OURS}trial"
_PARENT = "mlflow.parentRunId"
_AT_ONCE = 100
"""Number of runs whose metrics one request may ask for (MLflow, ``MAX_RUNS_GET_METRIC_HISTORY_BULK``)."""
_POINTS = 2500
"""Maximum number of points in an answer (``MAX_RESULTS_PER_RUN``); longer series are sampled."""
_FOREVER = 2**53
"""A step that is never reached."""
_PAGE = 1000
_STATUS = {"running": "RUNNING", "resumed": "RUNNING", "stopped": "KILLED", "done": "FINISHED",
           "failed": "FAILED"}  # fmt: skip

Call = Callable[[str, str, Any], Any]
"""Method, call, body → the answer of MLflow."""


@dataclass
class Row:
    """A recorded trial."""

    number: int
    id: str
    """Id of its MLflow run."""
    parameters: Mapping[str, Any]
    state: str
    judged: int = 0
    cause: str = ""
    has_checkpoint: bool = False
    exit: str = ""
    reason: str = ""
    """How its last start ended, as reported by its pod."""
    seen: int = 0
    """The highest step of any of its metrics."""
    reports: list[tuple[int, float]] = field(default_factory=list)
    """(step, value) of the search's metric."""


@dataclass(frozen=True)
class Whole:
    """A recorded search."""

    name: str
    id: str
    experiment: str
    state: str
    reason: str
    trials: int | None
    """None if it was not extended."""
    since: int
    """Failures of trials up to this one do not count."""
    order: Mapping[str, Any]
    summary: Mapping[str, Any]
    started: float
    """Seconds since the epoch."""


def alias_of(search: str, number: int) -> str:
    """Return the alias by which a trial's programs know its run; it is deterministic. ``search``: id of the
    search in MLflow."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{search}/{number}").hex


def begin(call: Call, name: str, experiment: str, order: Mapping[str, Any], tags: Mapping[str, str]) -> Whole:
    """Record a new search. ``experiment``: its name."""
    text = json.dumps(order, ensure_ascii=False, separators=(",", ":"))
    # A character may take several bytes, and MLflow counts characters.
    parts = [text[at : at + LONGEST_TAG] for at in range(0, len(text), LONGEST_TAG)]
    given = {**tags, SWEEP: name, _STATE: "running", f"{OURS}run": name}
    given |= {f"{_ORDER}{number}": part for number, part in enumerate(parts)}
    return whole_of(_create(call, experiment_of(call, experiment), name, given))


def find(call: Call, name: str) -> Whole | None:
    """Return the newest search of that name, in any experiment of the workspace."""
    found = next(iter(_search(call, f"tags.`{SWEEP}` = '{name}' AND tags.`{_STATE}` LIKE '%'", most=1)), None)
    return whole_of(found) if found else None


def names(call: Call, base: str) -> list[str]:
    """Return the names of the searches ``base-s1``, ``base-s2``, …."""
    found = _search(call, f"tags.`{SWEEP}` LIKE '{base}-s%' AND tags.`{_STATE}` LIKE '%'")
    return [_tags(each)[SWEEP] for each in found]


def all_of(call: Call) -> list[Whole]:
    """Return all searches of the workspace, the newest first."""
    return [whole_of(each) for each in _search(call, f"tags.`{_STATE}` LIKE '%'")]


def _search(call: Call, wanted: str, most: int = _PAGE, experiments: Sequence[str] = ()) -> Iterator[Any]:
    ids = experiments or [
        each["experiment_id"]
        for each in call("POST", "experiments/search", {"max_results": 1000}).get("experiments", ())
    ]
    body = {
        "experiment_ids": [*ids],
        "filter": wanted,
        "order_by": ["attributes.start_time DESC"],
        "max_results": most,
    }
    while ids:
        page = call("POST", "runs/search", body)
        yield from page.get("runs", ())
        if most < _PAGE or not page.get("next_page_token"):
            return
        body["page_token"] = page["next_page_token"]


def _create(call: Call, experiment: str, name: str, tags: Mapping[str, str]) -> Any:
    body = {
        "experiment_id": experiment,
        "run_name": name,
        "start_time": round(time.time() * 1000),
        "tags": [{"key": key, "value": value} for key, value in tags.items()],
    }
    return call("POST", CREATE, body)["run"]


def _tags(run: Any) -> dict[str, str]:
    return {each["key"]: each["value"] for each in run["data"].get("tags", ())}


def whole_of(run: Any) -> Whole:
    """Convert an MLflow run to a search."""
    tags, info = _tags(run), run["info"]
    parts = sorted(
        (int(key.removeprefix(_ORDER)), text) for key, text in tags.items() if key.startswith(_ORDER)
    )
    return Whole(
        name=tags[SWEEP],
        id=info["run_id"],
        experiment=info["experiment_id"],
        state=tags[_STATE],
        reason=tags.get(_REASON, ""),
        trials=int(tags[_TRIALS]) if _TRIALS in tags else None,
        since=int(tags.get(_SINCE, "0")),
        order=json.loads("".join(text for _, text in parts)),
        summary=json.loads(tags.get(_SUMMARY, "{}")),
        started=int(info["start_time"]) / 1000,
    )


class Ledger:
    """The record of one search. All methods may raise the errors of ``call``."""

    def __init__(self, call: Call, search: str) -> None:
        """``search``: id of the search in MLflow."""
        self._call = call
        self._search = search

    def whole(self) -> Whole:
        """Return its current state."""
        return whole_of(self._call("GET", f"runs/get?run_id={quote(self._search)}", None)["run"])

    def change(
        self,
        state: str,
        reason: str = "",
        *,
        trials: int | None = None,
        since: int | None = None,
    ) -> None:
        """Record the state of the search."""
        tags = {_STATE: state, _REASON: reason}
        if trials is not None:
            tags[_TRIALS] = str(trials)
        if since is not None:
            tags[_SINCE] = str(since)
        self._tag(self._search, tags)
        status: dict[str, Any] = {"run_id": self._search, "status": _STATUS[state]}
        if _STATUS[state] != "RUNNING":
            status["end_time"] = round(time.time() * 1000)
        self._call("POST", "runs/update", status)

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """Record what is shown of the search, if it is short enough for a tag."""
        text = json.dumps(summary, separators=(",", ":"))
        if len(text) <= LONGEST_TAG:
            self._tag(self._search, {_SUMMARY: text})

    def rows(self, experiment: str, metric: str) -> list[Row]:
        """Return all trials, by number, with all their reports of a metric.

        A program that is killed between two steps may leave two runs of one number: the sidecar finds the
        newer one.
        """
        found: dict[int, Row] = {}
        for run in _search(self._call, f"tags.`{_PARENT}` = '{self._search}'", experiments=[experiment]):
            if (row := row_of(run)) is not None:
                found.setdefault(row.number, row)
        rows = [found[number] for number in sorted(found)]
        self.read(rows, metric)
        return rows

    def refresh(self, rows: Sequence[Row], experiment: str) -> None:
        """Read what trials' pods noted: how they ended, what else they reported, whether there is a
        checkpoint. One request for each hundred."""
        known = {row.id: row for row in rows}
        ids = [*known]
        for at in range(0, len(ids), _AT_ONCE):
            chosen = ", ".join(f"'{each}'" for each in ids[at : at + _AT_ONCE])
            wanted = f"attributes.run_id IN ({chosen})"
            for now in map(row_of, _search(self._call, wanted, experiments=[experiment])):
                if now is not None:
                    row = known[now.id]
                    row.exit, row.reason, row.seen = now.exit, now.reason, now.seen
                    row.has_checkpoint = now.has_checkpoint

    def create(
        self, experiment: str, sweep: str, number: int, parameters: Mapping[str, Any], tags: Mapping[str, str]
    ) -> Row:
        """Record a new trial, before its run is created."""
        given = {
            **tags,
            ID: alias_of(self._search, number),
            _PARENT: self._search,
            SWEEP: sweep,
            _TRIAL: str(number),
            f"{_TRIAL}.parameters": json.dumps(parameters),
            f"{_TRIAL}.state": "running",
        }
        made = _create(self._call, experiment, f"{sweep}-{number}", given)
        return Row(number, made["info"]["run_id"], dict(parameters), "running")

    def note(
        self, row: Row, *, state: str | None = None, judged: int | None = None, cause: str | None = None
    ) -> None:
        """Record a change of a trial, and apply it to ``row``."""
        tags: dict[str, str] = {}
        if state is not None:
            tags[f"{_TRIAL}.state"] = state
        if judged is not None:
            tags[f"{_TRIAL}.judged"] = str(judged)
        if cause is not None:
            tags[f"{_TRIAL}.cause"] = cause[:LONGEST_TAG]
        self._tag(row.id, tags)
        row.state = row.state if state is None else state
        row.judged = row.judged if judged is None else judged
        row.cause = row.cause if cause is None else cause

    def read(self, rows: Sequence[Row], metric: str) -> None:
        """Add reports of a metric since the last call: one request for each hundred trials. The first value
        of a step counts, so known steps are not requested again."""
        ordered = sorted(rows, key=_next)
        for at in range(0, len(ordered), _AT_ONCE):
            some = {row.id: row for row in ordered[at : at + _AT_ONCE]}
            # Results are ordered by step, so that little is sent twice.
            query = [*(("run_ids", each) for each in some), ("metric_key", metric),
                     ("start_step", str(min(map(_next, some.values())))), ("end_step", str(_FOREVER)),
                     ("max_results", str(_POINTS))]  # fmt: skip
            answer = self._call("GET", f"metrics/get-history-bulk-interval?{urlencode(query)}", None)
            for point in sorted(answer.get("metrics", ()), key=lambda each: int(each["timestamp"])):
                row, step = some[point["run_id"]], int(point.get("step", 0))
                if step >= _next(row) or all(step != known for known, _ in row.reports):
                    row.reports.append((step, float(point.get("value", 0))))

    def _tag(self, run: str, tags: Mapping[str, str]) -> None:
        listed = [{"key": key, "value": value} for key, value in tags.items()]
        self._call("POST", BATCH, {"run_id": run, "tags": listed})


def _next(row: Row) -> int:
    """The step after the last one reported."""
    return max((step for step, _ in row.reports), default=-1) + 1


def row_of(run: Any) -> Row | None:
    """Convert an MLflow run to a trial; None if it is not one, for example a run that a trial's program
    started."""
    tags = _tags(run)
    if _TRIAL not in tags or ID not in tags:
        return None
    return Row(
        number=int(tags[_TRIAL]),
        id=run["info"]["run_id"],
        parameters=json.loads(tags[f"{_TRIAL}.parameters"]),
        state=tags.get(f"{_TRIAL}.state", "running"),
        judged=int(tags.get(f"{_TRIAL}.judged", "0")),
        cause=tags.get(f"{_TRIAL}.cause", ""),
        has_checkpoint=CHECKPOINT in tags,
        exit=tags.get(f"{OURS}exit", ""),
        reason=tags.get(f"{OURS}reason", ""),
        seen=max((int(each.get("step", 0)) for each in run["data"].get("metrics", ())), default=0),
    )
