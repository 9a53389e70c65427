"""What a pod's sidecar does for its run's record in MLflow.

In the run's folder of the store, ``tracking.json`` has the run time of earlier starts. The folder
``.unsent/`` of the namespace contains what could not be sent before a pod ended, one file for each start; the
next run of the namespace sends and removes it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from causeway.reported import parsed
from causeway.storage import MissingError, Storage
from causeway.tracking.record import (
    CHECKPOINT,
    OURS,
    Record,
    batch,
    before,
    cost_of,
    ended,
    is_name,
    metrics_of,
    site_of,
    usage_of,
)
from causeway.tracking.relay import PORT, Relay
from causeway.tracking.sending import AwayError, Outbox, Sender, Server
from causeway.tracking.spool import Names, Spool, read_json, write_json
from causeway.tracking.writes import CREATE, ID

_LAST = 20.0
"""Seconds in which the rest is sent at the end. With more, a server that is away would keep GPUs occupied."""
_LATELY = 120.0
"""In seconds: a server that has been away for longer is not waited for."""
_OFTEN = 60.0
"""Seconds between two checks of what is unsent, and of the cost."""
_left_out: set[str] = set()
"""Names of metrics that were reported once."""
_STATE, _UNSENT, _STARTED = "tracking.json", ".unsent/", "started.json"


class Tracked:
    """Tracks one pod."""

    def __init__(
        self,
        record: Record,
        worker: str,
        environment: Mapping[str, str],
        folder: Path,
        own: Storage,
        shared: Storage,
    ) -> None:
        """``folder``: the pod's. ``own``, ``shared``: the folders of the run and of the namespace's runs in
        the store."""
        self._record = record
        self._environment = environment
        self._output = folder / "output"
        self._own = own
        self._shared = shared
        self._run = environment["MLFLOW_RUN_ID"]
        token = environment.get("CAUSEWAY_TRACKING_TOKEN")
        self._server = Server.at(record.url, record.workspace, Path(token) if token else None)
        self._folder = folder / "tracking"
        spool = Spool(self._folder)
        self._names = Names(self._folder / "names.json")
        self._sender = Sender(self._server, self._names, _say)
        logs = worker == record.worker
        self._outbox = Outbox(spool, self._sender, _say) if logs else None
        self._relay = Relay(self._server, self._outbox, self._names, self._run, record.run, record.experiment)
        self._began = time.time()
        self._before: float | None = None
        """Run time of earlier starts in seconds; None until the store has been read."""
        self._key = f"{record.run}/{self._began:.0f}-{record.worker}.jsonl"
        self._starts: dict[str, float] = {}
        """Start of the run → its run time in seconds."""
        self._kept: Any = None
        """The part of the spool that is in the store."""
        self._due = 0.0
        self._checkpoint = ""
        self._image = ""
        self._over = threading.Event()
        self._stack = ExitStack()

    def begin(self) -> None:
        """Start listening, and record what is known already."""
        port = int(self._environment.get("CAUSEWAY_TRACKING_PORT") or PORT)
        try:
            self._stack.enter_context(self._relay.listening(port))
        except OSError as error:
            _say(f"cannot listen for MLflow clients on port {port}: {error.strerror}")
        if self._outbox is None:
            return
        begun = read_json(self._folder / "begun.json")
        if begun is None:
            self._note_start(self._outbox)
            write_json(self._folder / "begun.json", self._began)
        else:  # this program was restarted, not the pod
            self._began = begun
            self._key = f"{self._record.run}/{self._began:.0f}-{self._record.worker}.jsonl"
            self._kept = (0, 0)  # entries may already exist
        threading.Thread(target=self._send, args=(self._outbox,), daemon=True).start()

    def _send(self, outbox: Outbox) -> None:
        with suppress(Exception):  # the store or MLflow is away: later
            self._send_before()
        outbox.run(self._over)

    def _note_start(self, outbox: Outbox) -> None:
        record = self._record
        tags = [{"key": ID, "value": self._run}, {"key": "mlflow.user", "value": record.tags["mlflow.user"]}]
        body = {
            "experiment_id": self._relay.experiment,
            "run_name": record.run,
            "start_time": round(self._began * 1000),
            "tags": tags,
        }
        outbox.put({"call": CREATE, "alias": self._run, "body": body})
        outbox.put(batch(self._run, record.parameters, {**record.tags, **self._placed()}))
        outbox.put({"call": "runs/update", "body": {"run_id": self._run, "status": "RUNNING"}})

    def _placed(self) -> dict[str, str]:
        """Tags that identify the site and the start."""
        given = self._environment
        site = self._site
        place = self._record.places.get(site) if site else None
        found = {
            "site": site,
            "node": given.get("CAUSEWAY_NODE"),
            "restarts": given.get("CAUSEWAY_ATTEMPT") or "0",
            "gpu": place.gpu if place else None,
        }
        return {OURS + name: value for name, value in found.items() if value}

    @property
    def _site(self) -> str | None:
        given = self._environment
        return site_of(self._record.places, given.get("CAUSEWAY_ZONE", ""), given.get("CAUSEWAY_REGION", ""))

    def note_checkpoint(self, name: str) -> None:
        """Record that a run can resume from this checkpoint."""
        if self._outbox is not None and name != self._checkpoint:
            self._checkpoint = name
            self._outbox.put(batch(self._run, tags={CHECKPOINT: name}))

    def copy(self, last: bool) -> None:
        """Process new reports. Now and then, and at the end, also process costs and what has not been sent
        yet."""
        if self._outbox is None:
            if last:
                self._close()
            return
        self._take_reported(self._outbox)
        if not last and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _OFTEN
        if last:
            self._note_end(self._outbox)
        try:
            self._note_cost(self._outbox)
            self._note_image(self._outbox)
        finally:  # even if the store is away
            hopeful = last and self._server.was_there_within(_LATELY)
            self._outbox.flush(_LAST if hopeful else 0)
        self._keep_unsent(self._outbox)
        if last:
            self._close()
        elif not self._server.is_shy:
            self._send_before()

    def _close(self) -> None:
        self._over.set()
        self._stack.close()

    def _take_reported(self, outbox: Outbox) -> None:
        """Process new output of ``causeway.report``, and of the runtime on usage. If this process dies before
        it records its position, they are processed twice."""
        self._take(outbox, "metrics.jsonl", "reported.json", _metrics)
        self._take(outbox, "usage.jsonl", "used.json", _usage)

    def _take(
        self, outbox: Outbox, name: str, mark: str, read: Callable[[str], list[dict[str, Any]]]
    ) -> None:
        path, noted = self._output / name, self._folder / mark
        start = read_json(noted) or 0
        try:
            with path.open("rb") as file:
                file.seek(start)
                data = file.read()
        except FileNotFoundError:
            return
        data = data[: data.rfind(b"\n") + 1]
        if not data:
            return
        lines = data.decode("utf-8", "replace").split("\n")[:-1]
        metrics = [each for line in lines for each in read(line)]
        for at in range(0, len(metrics), 1000):
            outbox.put(batch(self._run, metrics=metrics[at : at + 1000]))
        write_json(noted, start + len(data))

    def _note_end(self, outbox: Outbox) -> None:
        said = read_json(self._output / "ended.json")
        if said is not None:
            for each in ended(self._run, said):
                outbox.put(each)

    def _note_cost(self, outbox: Outbox) -> None:
        if self._before is None:
            self._before = self._earlier()
        seconds = self._before + time.time() - self._began
        self._own.write(_STATE, json.dumps({**self._starts, self._key: time.time() - self._began}).encode())
        tags: dict[str, object] = {f"{OURS}hours": f"{seconds / 3600:.4f}"}
        site = self._site
        cost = cost_of(self._record.places.get(site) if site else None, seconds / 3600)
        if cost is not None:
            tags[f"{OURS}cost_usd"] = cost
        outbox.put(batch(self._run, tags=tags))

    def _note_image(self, outbox: Outbox) -> None:
        """Record the digest of the image that runs: the kubelet knows it, and a client that looks at the run
        saves it (``causeway.cluster.started``)."""
        if self._image:
            return
        with suppress(MissingError, KeyError, TypeError, ValueError):
            self._image = str(json.loads(self._own.read(_STARTED))["image"])
        if self._image:
            outbox.put(batch(self._run, tags={f"{OURS}image_digest": self._image}))

    def _earlier(self) -> float:
        try:
            self._starts = json.loads(self._own.read(_STATE))
        except (MissingError, ValueError):
            self._starts = {}
        self._starts.pop(self._key, None)
        return sum(self._starts.values())

    def _keep_unsent(self, outbox: Outbox) -> None:
        """Save unsent entries in the store, so that they outlive the pod."""
        if outbox.spool.is_empty:
            if self._kept is not None:
                self._shared.remove([_UNSENT + self._key])
                self._kept = None
            return
        now = outbox.spool.end
        if now != self._kept:
            lines = [self._names.values, *(entry for entry, _ in outbox.spool.waiting())]
            text = "".join(json.dumps(each) + "\n" for each in lines)
            self._shared.write(_UNSENT + self._key, text.encode())
            self._kept = now

    def _send_before(self) -> None:
        own = f"{_UNSENT}{self._record.run}/"

        def entries(key: str, found: Sequence[Any]) -> Sequence[Any]:
            return [*filter(None, map(before, found))] if key.startswith(own) else found

        with suppress(AwayError):
            send_left(self._shared, self._server, _say, _UNSENT + self._key, entries)


def send_left(
    shared: Storage,
    server: Server,
    say: Callable[[str], None],
    but: str = "",
    entries: Callable[[str, Sequence[Any]], Sequence[Any]] = lambda _, found: found,
) -> int:
    """Send what pods of a namespace left unsent, except the key ``but``; return how many were sent.
    ``entries`` selects among those of a key. Raises AwayError."""
    count = 0
    for key in sorted(shared.sizes(_UNSENT)):
        if key == but:
            continue
        try:
            names, *found = map(json.loads, shared.read(key).decode().splitlines())
            for _ in Sender(server, Names(found=names), say).send(entries(key, found)):
                pass
        except MissingError:  # another process was faster
            continue
        except (ValueError, KeyError, TypeError) as error:
            say(f"{key} cannot be read: {error!r}")
            continue
        shared.remove([key])
        count += 1
    return count


def _metrics(line: str) -> list[dict[str, Any]]:
    if (report := parsed(line)) is not None:
        for name in report.metrics.keys() - _left_out:
            if not is_name(name):
                _left_out.add(name)
                _say(f"MLflow does not accept the name of this metric, which is left out: {name[:200]!r}")
        return metrics_of(report)
    _say(f"a line of reported metrics cannot be parsed, and is left out: {line[:200]!r}")
    return []


def _usage(line: str) -> list[dict[str, Any]]:
    """Parse a line; empty if it is not readable: usage is not a result, so it is not an error."""
    try:
        return usage_of(json.loads(line))
    except (AttributeError, KeyError, TypeError, ValueError):
        return []


def _say(text: str) -> None:
    print(f"causeway: {text}", file=sys.stderr, flush=True)
