"""JSON logs, one object per line: the event in ``message``, and its data as fields."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from infra.autoscaler.decision import Decision, Status
from infra.autoscaler.loop import Cycle

_LOG: Final = logging.getLogger("infra.autoscaler")

_LEVELS: Final[dict[Status, int]] = {
    "done": logging.INFO,
    "planned": logging.INFO,
    "needless": logging.INFO,
    "stale": logging.INFO,
    "refused": logging.WARNING,
    "failed": logging.ERROR,
}
_NOTICES: Final = {"warning": logging.WARNING, "error": logging.ERROR}
_AGAIN: Final = 86400.0
"""Seconds after which a notice that still holds is logged again."""
_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _OF_EVERY_RECORD},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def begin(level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Log to ``stream`` (by default standard error). Libraries log only warnings, as their debug logs
    contain secrets."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("infra").setLevel(level)


class Teller:
    """Logs each cycle: one line for it, one per action, errors when they begin and end, and notices once a
    day."""

    def __init__(self) -> None:
        self._errors: dict[str, str] = {}
        self._noticed: dict[tuple[str, str, str], float] = {}
        self._leading: bool | None = None

    def __call__(self, cycle: Cycle) -> None:
        if cycle.leading != self._leading:
            self._leading = cycle.leading
            _LOG.info("this process decides" if cycle.leading else "another process decides; this one waits")
        if cycle.snapshot is not None:
            self._tell_errors({**cycle.snapshot.errors, **cycle.snapshot.faults})
        if cycle.decision is None:
            return
        self._tell_notices(cycle.decision)
        for done in cycle.results:
            fields = {
                name: value
                for name in done.action.__struct_fields__
                if (value := getattr(done.action, name)) not in ("", None)
            }
            _LOG.log(
                _LEVELS[done.result.status],
                "%s: %s",
                type(done.action).__name__,
                done.result.status,
                extra={"action": fields, "why": done.result.text, "seconds": round(done.seconds, 3)},
            )
        figures = cycle.decision.figures
        _LOG.info(
            "loop",
            extra={
                "seconds": round(cycle.seconds, 3),
                "dry": cycle.dry,
                "actions": len(cycle.decision.actions),
                "pending": dict(figures.pending),
                "ready": figures.ready,
                "unready": figures.unready,
                "stopped": cycle.decision.stopped,
            },
        )

    def _tell_notices(self, decision: Decision) -> None:
        """A notice that flaps is not logged each time."""
        now = decision.at
        self._noticed = {key: at for key, at in self._noticed.items() if now - at < _AGAIN}
        for notice in decision.notices:
            key: tuple[str, str, str] = (notice.kind, notice.about, notice.level)
            if self._noticed.setdefault(key, now) == now:
                _LOG.log(_NOTICES[notice.level], notice.text, extra={"notice": "/".join(key)})

    def _tell_errors(self, errors: dict[str, str]) -> None:
        for what, why in errors.items():
            if what not in self._errors:
                _LOG.warning("can't be read: %s", what, extra={"why": why})
        for what in self._errors.keys() - errors.keys():
            _LOG.info("can be read again: %s", what)
        self._errors = errors
