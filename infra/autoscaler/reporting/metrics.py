"""Metrics for Prometheus, and the health probes.

Names are those in ``templates/kubernetes/static`` (alerts and dashboard). Only the holder of the Lease
exports decisions: a standby replica exports nothing about groups, so that sums over replicas are right.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from infra.autoscaler.config import Config, Group
from infra.autoscaler.decision import Decision, Done, Release, SetDesired, Terminate
from infra.autoscaler.loop import Cycle
from infra.autoscaler.memory import Memory

PORT: Final = 10258
"""The port named ``metrics`` in the Deployment."""

DRY_RUN: Final = "dry run"
UNREADY: Final = "too many nodes are unready"

_PREFIX: Final = "causeway_autoscaler"
_OUTCOMES: Final = ("fits", "coming", "starting", "waits", "never")
_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_GROUP: Final = ("pool", "site")
_ACTED: Final = frozenset({"broken", "drain", "gang"})
"""Kinds of notices about actions of the controller, which a dry run does not execute."""

_NOTICED: Final = 7200.0
"""Seconds for which a notice is exported after it last held: longer than the range of any alert."""
_AWS: Final = (SetDesired, Terminate, Release)

Check = Callable[[], str | None]
"""Returns a description of the problem, or None."""


class Metrics:
    """An observer of the loop."""

    def __init__(self, config: Config, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self._config = config
        self._groups = {group.name: group for group in config.groups}
        self._sites = {region: site for site, region in config.regions.items()}
        self._leading = self._gauge("leading", "1 if this replica holds the Lease.")
        self._last = self._gauge("last_loop_timestamp_seconds", "When a loop last came to its end.")
        self._duration = Histogram(
            f"{_PREFIX}_loop_duration_seconds",
            "From one loop's begin to its end.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._pending = self._gauge("pending_pods", "Pods without a node, by verdict.", "reason")
        self._nodes = self._gauge("group_nodes", "Machines of a group.", *_GROUP)
        self._desired = self._gauge("group_desired", "The size that a group is set to, in units.", *_GROUP)
        self._cost = self._gauge("cost_dollars_per_hour", "What a group's machines cost.", *_GROUP)
        self._limit = self._gauge("cost_limit_dollars_per_hour", "max_hourly_cost; 0 for none.")
        self._backoff = self._gauge(
            "backoff_until_timestamp_seconds",
            "Until when a group takes no new machines; 0 if it does.",
            *_GROUP,
        )
        self._seen = self._gauge("nodes", "Nodes that should be ready, by whether they are.", "state")
        self._dry = self._gauge("dry_run", "1 if nothing is written.")
        self._stopped = self._gauge("stopped", "1 while nothing is written, by why.", "reason")
        # The time rather than a counter: ``increase`` does not see the first event of a series.
        self._notices = self._gauge(
            "notice_timestamp_seconds", "When it last held.", "kind", "about", "level"
        )
        self._noticed: dict[tuple[str, str, str], float] = {}
        self._capacity = self._counter(
            "capacity_failures_total", "Launches that failed for want of capacity.", *_GROUP
        )
        self._actions = self._counter("actions_total", "What was done.", "action")
        self._errors = self._counter("errors_total", "What an API did not answer, or refused.", "api", "site")
        self._limit.set(config.max_hourly_cost or 0)
        for group in config.groups:
            # Initial values, so that the first change is visible.
            self._capacity.labels(group.pool, group.site)

    def __call__(self, cycle: Cycle) -> None:
        """Export a cycle."""
        self._leading.set(int(cycle.leading))
        self._dry.set(int(cycle.dry))
        if not cycle.leading:
            self._forget()
            return
        self._duration.observe(cycle.seconds)
        if cycle.snapshot is not None:
            for what in cycle.snapshot.errors:
                self._errors.labels(*self._place(what)).inc()
        for done in cycle.results:
            self._did(done)
        if cycle.error is not None:
            self._errors.labels("loop", "").inc()
        elif cycle.decision is not None:
            self._last.set(cycle.at + cycle.seconds)
            self._decided(cycle.decision, dry=cycle.dry)

    def _decided(self, decision: Decision, *, dry: bool) -> None:
        figures, at = decision.figures, decision.at
        for outcome in _OUTCOMES:
            self._pending.labels(outcome).set(figures.pending.get(outcome, 0))
        for name, group in self._groups.items():
            where = (group.pool, group.site)
            self._nodes.labels(*where).set(figures.nodes.get(name, 0))
            if name in figures.desired:
                self._desired.labels(*where).set(figures.desired[name])
            self._cost.labels(*where).set(figures.cost.get(name, 0.0))
            self._backoff.labels(*where).set(_until(group, decision.memory, at))
            self._capacity.labels(*where).inc(figures.failures.get(name, 0))
        self._notice(decision, dry=dry)
        self._seen.labels("ready").set(figures.ready)
        self._seen.labels("unready").set(figures.unready)
        self._stopped.labels(DRY_RUN).set(int(dry))
        self._stopped.labels(UNREADY).set(int(decision.stopped is not None))

    def _notice(self, decision: Decision, *, dry: bool) -> None:
        for each in decision.notices:
            if not (dry and each.kind in _ACTED):
                self._noticed[each.kind, each.about, each.level] = decision.at
        for labels, at in [*self._noticed.items()]:
            if decision.at - at < _NOTICED:
                self._notices.labels(*labels).set(at)
            else:
                del self._noticed[labels]
                self._notices.remove(*labels)

    def _did(self, done: Done) -> None:
        name = re.sub(r"(?<!^)(?=[A-Z])", "-", type(done.action).__name__).lower()
        if done.result.status == "done":
            self._actions.labels(name).inc()
        elif done.result.status in ("refused", "failed"):
            on_aws = isinstance(done.action, _AWS)
            group = self._groups.get(done.action.group) if isinstance(done.action, _AWS) else None
            self._errors.labels("aws" if on_aws else "kube", group.site if group else "").inc()

    def _forget(self) -> None:
        """Stop exporting decisions: another replica is the holder."""
        for gauge in (
            self._pending, self._nodes, self._desired, self._cost, self._backoff, self._seen, self._stopped,
            self._notices,
        ):  # fmt: skip
            gauge.clear()
        self._noticed.clear()
        self._last.set(0)

    def _place(self, what: str) -> tuple[str, str]:
        """``aws/us-west-2/spot`` → (aws, the site's name)."""
        api, _, rest = what.partition("/")
        return api, self._sites.get(rest.partition("/")[0], "")

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:  # noqa: A002 - Prometheus's word
        return Gauge(f"{_PREFIX}_{name}", help, labels, registry=self.registry)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:  # noqa: A002 - Prometheus's word
        return Counter(f"{_PREFIX}_{name}", help, labels, registry=self.registry)


def _until(group: Group, memory: Memory, now: float) -> float:
    """When the group's back-off ends, or, if all of its zones have one, the first of these; 0 if there is
    none."""
    own = memory.backoffs.get(group.name)
    zones = [memory.backoffs.get(f"{group.name}/{zone}") for zone in group.zones]
    ends = [own.until] if own is not None else []
    if zones and all(zones):
        ends.append(min(each.until for each in zones if each is not None))
    return max((end for end in ends if end > now), default=0.0)


# -- Served -------------------------------------------------------------------------------------------------


class Server:
    """``/metrics``, ``/healthz`` and ``/readyz``, until closed."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        healthy: Check,
        ready: Check,
        port: int = PORT,
        address: str = "0.0.0.0",  # noqa: S104 - Prometheus and the kubelet come from elsewhere
    ) -> None:
        """``port`` 0: any free port, see ``port``. Raises ``OSError`` if the port is in use."""
        answers: dict[str, Callable[[], tuple[int, str, bytes]]] = {
            "/metrics": lambda: (200, CONTENT_TYPE_LATEST, generate_latest(registry)),
            "/healthz": lambda: _probed(healthy),
            "/readyz": lambda: _probed(ready),
        }

        class Handler(BaseHTTPRequestHandler):
            timeout = 10  # for clients that connect and send nothing

            def do_GET(self) -> None:
                answer = answers.get(self.path.partition("?")[0])
                code, kind, body = answer() if answer is not None else (404, "text/plain", b"not here\n")
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its parent's word
                """Requests of probes are not logged."""

        self._server = ThreadingHTTPServer((address, port), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _probed(check: Check) -> tuple[int, str, bytes]:
    try:
        wrong = check()
    except Exception as problem:
        wrong = f"{type(problem).__name__}: {problem}"
    return (200, "text/plain", b"ok\n") if wrong is None else (503, "text/plain", f"{wrong}\n".encode())
