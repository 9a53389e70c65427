"""Sends to MLflow's server, now or later."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPSConnection
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from causeway.tracking.forwarding import AWAY
from causeway.tracking.spool import Names, Spool
from causeway.tracking.writes import CREATE, ID, merged

API = "/api/2.0/mlflow"
WORKSPACE = "X-MLFLOW-WORKSPACE"
"""Header: ``mlflow.utils.workspace_utils.WORKSPACE_HEADER_NAME``."""
_KIND = "custom_model_development"
"""Determines MLflow's pages for an experiment: those of training, not those of language models."""
EVERY = 5.0
"""Seconds for which writes are gathered into one or two requests."""
_TIMEOUT = 15.0
_PATIENCE = 5.0
_SHY = 10.0
"""Seconds after a failure during which requests that a program waits for are not tried."""
_LONGEST = 60.0
"""Maximum seconds between two retries."""
_AT_ONCE = 5000
"""Maximum number of entries in one batch."""


class AwayError(Exception):
    """The server does not answer, or does not admit us: it may later."""


class RejectedError(Exception):
    """The server rejects the request, and always will."""


class Server:
    """The cluster's MLflow, as the runs of a namespace reach it."""

    def __init__(
        self,
        connect: Callable[[float], HTTPConnection],
        workspace: str,
        token: Callable[[], str] | None,
        path: str = "",
    ) -> None:
        """``connect`` receives the timeout in seconds. ``token``: None for a server without authentication.
        ``path``: the server's base path."""
        self.connection = connect
        self._workspace = workspace
        self._token = token
        self._path = path
        self._shy_until = 0.0
        self._seen: float | None = None

    @classmethod
    def at(cls, url: str, workspace: str, token: Path | None) -> Server:
        """``token``: the file of a service account's token. It is read each time, as the kubelet renews
        it."""
        where = urlsplit(url)
        kind = HTTPSConnection if where.scheme == "https" else HTTPConnection

        def connect(timeout: float) -> HTTPConnection:
            return kind(where.hostname or "", where.port, timeout=timeout)

        def read() -> str:
            return token.read_text(encoding="ascii").strip() if token else ""

        return cls(connect, workspace, read if token else None, where.path.rstrip("/"))

    @property
    def headers(self) -> dict[str, str]:
        """The headers for the server."""
        found = {WORKSPACE: self._workspace}
        if self._token is not None:
            found["Authorization"] = f"Bearer {self._token()}"
        return found

    def target(self, target: str) -> str:
        """Return a path and query under the server's base path."""
        return self._path + target

    @property
    def is_shy(self) -> bool:
        """Whether it has just failed to answer."""
        return time.monotonic() < self._shy_until

    def was_away(self) -> None:
        self._shy_until = time.monotonic() + _SHY

    def was_there(self) -> None:
        self._shy_until = 0.0
        self._seen = time.monotonic()

    def was_there_within(self, seconds: float) -> bool:
        """Whether it answered so recently that it may soon do so again."""
        return self._seen is not None and time.monotonic() - self._seen < seconds

    def call(self, method: str, call: str, body: Any = None, timeout: float = _TIMEOUT) -> Any:
        """Call the API. Raises AwayError, RejectedError."""
        connection = self.connection(timeout)
        try:
            headers = {**self.headers, "Content-Type": "application/json"}
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, self.target(f"{API}/{call}"), data, headers)
            found = connection.getresponse()
            text = found.read()
        except AWAY as error:
            self.was_away()
            raise AwayError(str(error) or type(error).__name__) from None
        finally:
            connection.close()
        try:
            said = json.loads(text)
            code = said.get("error_code") if isinstance(said, dict) else None
        except ValueError:
            said, code = None, None
        if found.status == 200 and said is not None:
            self.was_there()
            return said
        message = said["message"] if code and "message" in said else f"HTTP {found.status}"
        # A missing permission may be granted, and an expired token renewed.
        if code and 400 <= found.status < 500 and found.status not in (401, 403, 408, 429):
            self.was_there()
            raise RejectedError(message)
        self.was_away()
        raise AwayError(message)


class Sender:
    """Sends entries of a spool in order, each until the server has accepted it or never will."""

    def __init__(self, server: Server, names: Names, say: Callable[[str], None]) -> None:
        self._server = server
        self._names = names
        self._say = say

    def send(self, entries: Sequence[Any]) -> Iterator[int]:
        """Send entries; yield the number of entries that are finished after each request. Raises
        AwayError."""
        done = 0
        for count, request in merged(entries):
            refused = self._refused(request)
            if refused and count == 1:
                self._say(f"MLflow rejects logged values: {refused}")
            elif refused:  # because of one entry: the others are sent without it
                for each in filter(None, map(self._refused, entries[done : done + count])):
                    self._say(f"MLflow rejects logged values: {each}")
            done += count
            yield done

    def _refused(self, request: Mapping[str, Any]) -> str:
        """Send a request; return why the server rejects it; empty if it does not."""
        try:
            self._one(request)
        except RejectedError as error:
            return str(error)
        return ""

    def _one(self, request: Mapping[str, Any]) -> None:
        if request["call"] == CREATE:
            self._create(request["alias"], request["body"])
            return
        self._server.call("POST", request["call"], self._translated(request["body"]))

    def _translated(self, body: Any) -> Any:
        return json.loads(self._names.translated(json.dumps(body)))

    def _create(self, alias: str, body: Mapping[str, Any]) -> None:
        if self._names.run_id(alias) is not None:
            return
        experiment = self._experiment(body["experiment_id"])
        wanted = {"experiment_ids": [experiment], "filter": f"tags.`{ID}` = '{alias}'", "max_results": 1}
        found = self._server.call("POST", "runs/search", wanted).get("runs")
        if not found:
            made = {**self._translated(body), "experiment_id": experiment}
            found = [self._server.call("POST", CREATE, made)["run"]]
        info = found[0]["info"]
        self._names.found_run(alias, info["run_id"], info["artifact_uri"])

    def _experiment(self, alias: str) -> str:
        """Return the server's id of an experiment, creating it if necessary."""
        name = self._names.experiment_name(alias)
        if name is None:
            return alias
        known = self._names.experiment_id(alias)
        if known is not None:
            return known
        found = experiment_of(self._server.call, name)
        self._names.found_experiment(alias, found)
        return found


def experiment_of(call: Callable[[str, str, Any], Any], name: str) -> str:
    """Return the server's id of an experiment, creating it if necessary. Raises RejectedError, AwayError."""
    by_name = f"experiments/get-by-name?experiment_name={quote(name, safe='')}"
    try:
        return str(call("GET", by_name, None)["experiment"]["experiment_id"])
    except RejectedError:
        made = {"name": name, "tags": [{"key": "mlflow.experimentKind", "value": _KIND}]}
    try:
        return str(call("POST", "experiments/create", made)["experiment_id"])
    except RejectedError:  # another process was faster
        return str(call("GET", by_name, None)["experiment"]["experiment_id"])


class Outbox:
    """A spool, and a thread that sends its entries."""

    def __init__(self, spool: Spool, sender: Sender, say: Callable[[str], None]) -> None:
        self._spool = spool
        self._sender = sender
        self._say = say
        self._some = threading.Event()
        self._sending = threading.Lock()
        self._said = ""
        self._full = False

    @property
    def spool(self) -> Spool:
        return self._spool

    def put(self, entry: Any) -> None:
        """Store an entry for sending. A full disk does not stop the program: what does not fit is lost."""
        try:
            self._spool.append(entry)
        except OSError as error:
            if not self._full:
                self._full = True
                self._say(f"logged values are lost: {error}")
            return
        self._full = False
        self._some.set()

    def catch_up(self) -> bool:
        """Try to send; return whether the server has everything: for a program that waits."""
        return self._spool.is_empty or self._try(patience=_PATIENCE)

    def flush(self, seconds: float) -> bool:
        """Whether the server has everything within so many seconds."""
        until = time.monotonic() + seconds
        while not self._try():
            if time.monotonic() > until:
                return False
            time.sleep(0.5)
        return True

    def run(self, over: threading.Event) -> None:
        """Run until ``over`` is set."""
        wait = EVERY
        while not over.wait(wait):
            if self._spool.is_empty:
                self._some.clear()
                while self._spool.is_empty and not over.is_set() and not self._some.wait(0.5):
                    pass
                wait = EVERY
                continue
            wait = EVERY if self._try() else min(wait * 1.5, _LONGEST)

    def _try(self, patience: float = -1) -> bool:
        """``patience``: seconds to wait for an attempt in progress; -1 for as long as it takes."""
        if not self._sending.acquire(timeout=patience):
            return False
        try:
            return self._send()
        finally:
            self._sending.release()

    def _send(self) -> bool:
        end = self._spool.end  # whatever arrives meanwhile is sent in the next batch
        try:
            while batch := [each for each in islice(self._spool.waiting(), _AT_ONCE) if each[1] <= end]:
                places = [position for _, position in batch]
                for done in self._sender.send([entry for entry, _ in batch]):
                    self._spool.sent(places[done - 1])
        except AwayError as error:
            if str(error) != self._said:
                self._said = str(error)
                self._say(f"MLflow does not answer; logged values are sent later: {error}")
            return False
        self._said = ""
        return True
