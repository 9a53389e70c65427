"""Notices to Slack and to a webhook, from their own thread: a receiver that does not answer delays nothing.

``deduplication`` decides which notices are new. What cannot be delivered after a few tries is logged
and dropped: the cluster's own alerts go another way.

Secrets are files of a folder, ``slack`` (a bot's token) and ``webhook`` (an address), read each time, so
that new ones need no restart. They appear in no log: an address is a secret as a whole.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, Final

import urllib3

from infra.autoscaler.config import Config
from infra.autoscaler.decision import Notice
from infra.autoscaler.loop import Cycle

FOLDER: Final = Path("/etc/autoscaler/notices")
"""Where the Deployment mounts the Secret."""
SLACK: Final = "https://slack.com/api/chat.postMessage"
"""https://docs.slack.dev/reference/methods/chat.postMessage"""

PAUSES: Final = (2.0, 10.0, 60.0, 300.0)
"""Seconds between tries."""
_LONGEST: Final = 600.0
"""Seconds that somebody may tell us to wait (``Retry-After``)."""
_TIMEOUT: Final = urllib3.Timeout(connect=5.0, read=10.0)
_WAITING: Final = 500
"""Notices that may wait to be sent."""
_ONE_MESSAGE: Final = 25
"""Notices of one message: Slack cuts a text at 4,000 characters in display, and at 40,000 for good."""

_LOG: Final = logging.getLogger(__name__)


class _NotTakenError(Exception):
    """A message was not taken. ``after``: seconds to wait; ``final``: trying again is of no use."""

    def __init__(self, text: str, *, after: float = 0.0, final: bool = False) -> None:
        self.after = after
        self.final = final
        super().__init__(text)


class Notifier:
    """An observer of the loop."""

    def __init__(
        self,
        config: Config,
        folder: Path = FOLDER,
        *,
        slack: str = SLACK,
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        self._config = config
        self._folder = folder
        self._slack = slack
        self._pauses = tuple(pauses)
        self._stop = Event()
        self._http = urllib3.PoolManager(timeout=_TIMEOUT, retries=False)
        ways = {"slack": config.slack is not None, "webhook": config.webhook}
        self._queues: Mapping[str, Queue[tuple[Notice, bool]]] = {
            way: Queue(_WAITING) for way, wanted in ways.items() if wanted
        }
        # A thread each: Slack being down must not silence a webhook.
        self._threads = [
            Thread(target=self._work, args=(way,), name=f"notices-{way}", daemon=True) for way in self._queues
        ]
        for thread in self._threads:
            thread.start()

    def __call__(self, cycle: Cycle) -> None:
        """Send a cycle's notices. Returns at once."""
        if cycle.decision is None:
            return
        for notice in cycle.decision.notices:
            _LOG.log(_LEVELS[notice.level], notice.text, extra={"notice": notice.key})
            for way, queue in self._queues.items():
                try:
                    queue.put_nowait((notice, cycle.dry))
                except Full:
                    _LOG.warning("%s takes nothing: a notice is dropped", way, extra={"notice": notice.key})

    def close(self, seconds: float = 5.0) -> None:
        """Send what still waits, once and without patience, and end."""
        self._stop.set()
        for thread in self._threads:
            thread.join(seconds)
        self._http.clear()

    # -- the threads --

    def _work(self, way: str) -> None:
        queue = self._queues[way]
        while not (self._stop.is_set() and queue.empty()):
            try:
                found = [queue.get(timeout=0.2)]
            except Empty:
                continue
            while len(found) < _ONE_MESSAGE and not queue.empty():
                found.append(queue.get_nowait())
            try:
                self._deliver(way, found)
            except Exception:
                _LOG.exception("notices to %s failed", way)

    def _deliver(self, way: str, found: Sequence[tuple[Notice, bool]]) -> None:
        for pause in (*self._pauses, None):
            try:
                if way == "slack":
                    self._to_slack(found)
                else:
                    self._to_webhook(found)
            except _NotTakenError as problem:
                if problem.final or pause is None or self._stop.is_set():
                    keys = [notice.key for notice, _ in found]
                    _LOG.warning("%s took no notice: %s", way, problem, extra={"notices": keys})
                    return
                self._stop.wait(max(pause, problem.after))
            else:
                return

    def _to_slack(self, found: Sequence[tuple[Notice, bool]]) -> None:
        token = self._secret("slack")
        channel = (self._config.slack or "").removeprefix("#")
        text = "\n".join(_escaped(self._line(notice, dry=dry)) for notice, dry in found)
        body = {"channel": channel, "text": text, "unfurl_links": False, "unfurl_media": False}
        answer = self._post(self._slack, body, {"Authorization": f"Bearer {token}"})
        # Slack says 200 to nearly everything, and what it means in the body.
        try:
            said = json.loads(answer)
        except ValueError:
            raise _NotTakenError("its answer is not JSON") from None
        if not said.get("ok"):
            error = str(said.get("error", "no reason given"))
            raise _NotTakenError(error, final=error not in _SLACK_PASSING)

    def _to_webhook(self, found: Sequence[tuple[Notice, bool]]) -> None:
        body = {
            # What Slack's, Mattermost's and others' incoming webhooks read.
            "text": "\n".join(self._line(notice, dry=dry) for notice, dry in found),
            "environment": self._config.environment,
            "cluster": self._config.cluster,
            "notices": [
                {"key": notice.key, "level": notice.level, "text": notice.text, "dry_run": dry}
                for notice, dry in found
            ],
        }
        self._post(self._secret("webhook"), body, {})

    def _post(self, address: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
        try:
            answer = self._http.request(
                "POST",
                address,
                body=json.dumps(body).encode(),
                headers={"Content-Type": "application/json; charset=utf-8", **headers},
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, ValueError, OSError) as problem:
            # Its text may hold the address.
            raise _NotTakenError(type(problem).__name__) from None
        if answer.status == 429 or answer.status >= 500:
            raise _NotTakenError(f"HTTP {answer.status}", after=_after(answer.headers.get("Retry-After")))
        if answer.status >= 300:
            raise _NotTakenError(f"HTTP {answer.status}", final=True)
        return answer.data

    def _line(self, notice: Notice, *, dry: bool) -> str:
        rehearsed = " (dry run)" if dry else ""
        return f"{self._config.environment}{rehearsed}: {_WORDS[notice.level]}{notice.text}"

    def _secret(self, name: str) -> str:
        try:
            text = (self._folder / name).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            text = ""
        if not text:
            raise _NotTakenError(f"there is no secret {name}: `invoke cluster.up` brings it", final=True)
        return text


_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_WORDS: Final = {"info": "", "warning": "warning: ", "error": "error: "}
_SLACK_PASSING: Final = frozenset(
    {"ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout"}
)
"""Errors that pass."""


def _after(text: str | None) -> float:
    """Seconds of ``Retry-After``; its form as a date is not waited for."""
    return min(float(text), _LONGEST) if text is not None and text.isdigit() else 0.0


def _escaped(text: str) -> str:
    """As Slack wants text that is not markup ("Formatting message text")."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
