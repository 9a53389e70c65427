"""MLflow for the programs of a pod: at an address in the pod, without a token, and always available.

Metrics, parameters, tags and run states are stored on disk, answered immediately, and sent in a few requests
a minute. Everything else is forwarded. While the server is away, runs and experiments that a program starts
with are placeholders until the server creates the objects, and requests that need the server fail
immediately.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from causeway.tracking.forwarding import AWAY, Forwarded
from causeway.tracking.sending import Outbox, Server
from causeway.tracking.spool import Names
from causeway.tracking.writes import CREATE, ID, alias_of, entry_of, experiment_answer, run_answer

PORT = 5757
OTHERS = "/others"
"""Suffix of the URL for ranks that do not log: their writes are answered and dropped."""
_PREFIXES = ("/api/2.0/mlflow/", "/ajax-api/2.0/mlflow/")
_START = 5.0
"""Seconds that a starting program waits for the server."""
_STREAM = 60.0
_SEEN = 100
"""Number of runs whose last answer is remembered."""
_AWAY = "the cluster's MLflow does not answer"
_BY_NAME, _BY_ID, _NEW = "experiments/get-by-name", "experiments/get", "experiments/create"


class Relay:
    """The relay of one pod."""

    def __init__(
        self, server: Server, outbox: Outbox | None, names: Names, alias: str, name: str, experiment: str
    ) -> None:
        """``outbox``: None if nothing is logged. ``alias``: the name by which programs know the pod's run.
        ``experiment``: name of its experiment."""
        self.server = server
        self.outbox = outbox
        self.names = names
        self.alias = alias
        self.experiment = alias_of(experiment)
        names.experiment(experiment, self.experiment)
        self._started: dict[str, Any] = {alias: run_answer(alias, self.experiment, name)}
        self.chosen: str | None = None
        """The id of the experiment that the program has requested."""
        self.seen: dict[str, Any] = {}
        """The server's id of a run → its last answer about it. MLflow's client asks again at the end of a
        run, and the program must not fail if the server is away then."""

    def create(self, body: Mapping[str, Any], *, kept: bool = True) -> dict[str, Any]:
        """Return the answer for a run that is created once the server is available. ``kept``: False if it
        never will be."""
        alias = uuid.uuid4().hex
        tags = [*body.get("tags", ()), {"key": ID, "value": alias}]
        name = body.get("run_name") or ""
        self._started[alias] = run_answer(alias, str(body.get("experiment_id", "0")), name, tags)
        if kept and self.outbox is not None:
            self.outbox.put({"call": CREATE, "alias": alias, "body": {**body, "tags": tags}})
        found: dict[str, Any] = self._started[alias]
        return found

    def started(self, run: str) -> dict[str, Any] | None:
        """Return the answer about a run that a program started."""
        found: dict[str, Any] | None = self._started.get(run)
        return found

    def remember(self, answer: Any) -> None:
        """Remember what the server answers about a run."""
        run = str(answer["run"]["info"]["run_id"])
        if run in self.seen or len(self.seen) < _SEEN:
            self.seen[run] = answer

    def placed(self, answer: Any) -> Any:
        """Return the answer about the pod's run, in the experiment that the program has chosen: MLflow's
        client refuses to start a run of another one."""
        if self.chosen is not None:
            answer["run"]["info"]["experiment_id"] = self.chosen
        return answer

    @contextmanager
    def listening(self, port: int) -> Iterator[int]:
        """Serve the pod's programs. Raises OSError if the port is taken."""
        relay = self

        class Handler(_Handler):
            def __init__(self, *given: Any) -> None:
                self.relay = relay
                super().__init__(*given)

        with _Listener(("127.0.0.1", port), Handler) as listener:
            thread = threading.Thread(target=listener.serve_forever, args=(0.1,), daemon=True)
            thread.start()
            try:
                yield listener.server_address[1]
            finally:
                listener.shutdown()
                thread.join()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(Forwarded):
    relay: Relay

    def do_any(self) -> None:
        path = self.path
        quiet = path.startswith(OTHERS + "/") or self.relay.outbox is None
        path = path.removeprefix(OTHERS)
        call = next((urlsplit(path).path[len(each) :] for each in _PREFIXES if path.startswith(each)), None)
        if call is None:
            if quiet and self.command in ("PUT", "POST", "PATCH", "DELETE"):
                self.leave()
                self.answer({})
                return
            self._stream(path)
            return
        data = self.whole_body()
        values = self._values(path, data)
        if self.command == "POST" and (entry := entry_of(call, values)) is not None:
            self._keep(call, entry, quiet=quiet)
        elif call == CREATE and quiet:
            self.answer(self.relay.create(values, kept=False))
        elif not self._pass(path, data, call, values):
            self._stand_in(call, values)

    def _values(self, path: str, data: bytes) -> dict[str, Any]:
        """The fields of a request, in its query or its body."""
        if self.command == "GET":
            return {name: each[0] for name, each in parse_qs(urlsplit(path).query).items()}
        try:
            found = json.loads(data or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _keep(self, call: str, entry: dict[str, Any], *, quiet: bool) -> None:
        outbox = self.relay.outbox
        if not quiet and outbox is not None:
            outbox.put(entry)
        if call != "runs/update":
            self.answer({})
            return
        run = entry["body"].get("run_id") or entry["body"].get("run_uuid")
        info = {**(self.relay.started(run) or run_answer(run, "0", ""))["run"]["info"]}
        info |= {each: entry["body"][each] for each in ("status", "end_time") if each in entry["body"]}
        self.answer({"run_info": info})

    def _pass(self, path: str, data: bytes, call: str, values: Mapping[str, Any]) -> bool:
        """Forward to the server, once it has received everything logged before. False if it is away."""
        relay, server = self.relay, self.relay.server
        if server.is_shy or (relay.outbox is not None and not relay.outbox.catch_up()):
            return False
        if self._is_not_made(values):
            return False
        target = server.target(relay.names.translated(path))
        body = relay.names.translated(data.decode("utf-8", "replace")).encode() if data else b""
        with closing(server.connection(_START if call in _AT_START else _STREAM)) as connection:
            try:
                found = self.ask(connection, target, body, server.headers)
                looked_at = call in _LOOKED_AT and found.status == 200
                refused = found.status in (401, 403) or found.status >= 500
                text = found.read() if looked_at or refused else b""
            except AWAY:
                server.was_away()
                return False
            if refused and call in _AT_START:
                server.was_away()
                return False
            if refused:
                self.refuse(_message(text, found.status))
            elif looked_at:
                server.was_there()
                self.answer(self._noted(call, values, json.loads(text)))
            else:
                self.pass_back(found)
        return True

    def _is_not_made(self, values: Mapping[str, Any]) -> bool:
        """Whether the request names a run or an experiment that the server does not have yet."""
        names = self.relay.names
        run, experiment = str(values.get("run_id") or ""), str(values.get("experiment_id") or "")
        return (self.relay.started(run) is not None and names.run_id(run) is None) or (
            names.experiment_name(experiment) is not None and names.experiment_id(experiment) is None
        )

    def _noted(self, call: str, values: Mapping[str, Any], answer: Any) -> Any:
        if call == _BY_NAME:
            self.relay.chosen = str(answer["experiment"]["experiment_id"])
        elif call == _NEW:
            self.relay.chosen = str(answer["experiment_id"])
        elif call == "runs/get":
            self.relay.remember(answer)
            return self.relay.placed(answer) if values.get("run_id") == self.relay.alias else answer
        return answer

    def _stand_in(self, call: str, values: Mapping[str, Any]) -> None:
        """Answer in the server's place."""
        relay = self.relay
        run = str(values.get("run_id"))
        if call == "runs/get" and (found := relay.started(run) or relay.seen.get(run)) is not None:
            answer = json.loads(json.dumps(found))
            self.answer(relay.placed(answer) if values["run_id"] == relay.alias else answer)
        elif call == CREATE:
            self.answer(relay.create(values))
        elif call in (_BY_NAME, _NEW):
            name = str(values.get("experiment_name") or values.get("name"))
            relay.chosen = alias_of(name)
            relay.names.experiment(name, relay.chosen)
            shown = experiment_answer(name, relay.chosen)
            self.answer(shown if call == _BY_NAME else {"experiment_id": relay.chosen})
        elif call == _BY_ID and (known := relay.names.experiment_name(str(values.get("experiment_id")))):
            self.answer(experiment_answer(known, str(values["experiment_id"])))
        else:
            self.refuse(_AWAY)

    def _stream(self, path: str) -> None:
        """Stream artifacts, models and traces."""
        relay, server = self.relay, self.relay.server
        if server.is_shy or (relay.outbox is not None and not relay.outbox.catch_up()):
            self.refuse(_AWAY)
            return
        with closing(server.connection(_STREAM)) as connection:
            try:
                target = server.target(relay.names.translated(path))
                body = None
                # Files are passed on unchanged, as are bodies that are too long to keep in memory.
                if "/mlflow-artifacts/" not in path and self.is_short_json():
                    body = relay.names.translated(self.whole_body().decode("utf-8", "replace")).encode()
                found = self.ask(connection, target, body, server.headers)
            except AWAY as error:
                server.was_away()
                self.refuse(f"{_AWAY}: {error}")
                return
            server.was_there()
            self.pass_back(found)


_AT_START = ("runs/get", CREATE, _BY_NAME, _BY_ID, _NEW)
"""Requests that programs start with: they continue without the server."""
_LOOKED_AT = ("runs/get", _BY_NAME, _NEW)


def _message(text: bytes, status: int) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return f"MLflow answers with HTTP {status}"
