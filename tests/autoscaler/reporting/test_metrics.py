"""What Prometheus sees of a loop, under the names that alerts and the dashboard ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import urllib3
from autoscaler import make
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from infra.autoscaler.decision import (
    Decision,
    Done,
    Figures,
    Notice,
    NoticeKind,
    Result,
    SetDesired,
    TaintNode,
    Terminate,
)
from infra.autoscaler.loop import Cycle
from infra.autoscaler.memory import Backoff, Memory
from infra.autoscaler.observed.snapshot import Snapshot
from infra.autoscaler.reporting.metrics import UNREADY, Metrics, Server
from infra.render.kubernetes import autoscaler as rendered

STATIC = Path(__file__).parents[3] / "templates" / "kubernetes" / "static"
NOW = make.NOW
GROUP = make.group()
ZONES = GROUP.zones
WHERE = {"pool": GROUP.pool, "site": GROUP.site}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(make.config(GROUP))


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"causeway_autoscaler_{name}", labels)


def backoff(until: float) -> Backoff:
    return Backoff("capacity", "none left", NOW, NOW, until, 1)


def decision(*, memory: Memory | None = None, stopped: str | None = None) -> Decision:
    figures = Figures(
        pending={"waits": 7, "starting": 2},
        nodes={GROUP.name: 3},
        desired={GROUP.name: 5},
        cost={GROUP.name: 36.72},
        failures={GROUP.name: 2},
        ready=3,
    )
    return Decision(at=NOW, actions=(), memory=memory or Memory(), figures=figures, stopped=stopped)


def done(action: object, status: str) -> Done:
    return Done(action, Result(status))  # type: ignore[arg-type]


def test_36_a_loop_shows_what_was_decided_and_done(metrics: Metrics) -> None:
    bought = SetDesired(GROUP.name, 3, 5, "for pods")
    results = (
        done(bought, "done"),
        done(TaintNode("n", "idle"), "done"),
        done(TaintNode("m", "idle"), "planned"),
        done(Terminate(GROUP.name, "i-1", "n", "idle"), "refused"),
    )
    snapshot = Snapshot(at=NOW, errors={f"aws/{GROUP.region}/spot": "throttled", "kube/workloads": "403"})
    memory = Memory(backoffs={GROUP.name: backoff(NOW + 300)})
    metrics(Cycle(at=NOW, seconds=0.4, snapshot=snapshot, decision=decision(memory=memory), results=results))
    assert value(metrics, "last_loop_timestamp_seconds") == NOW + 0.4
    assert value(metrics, "loop_duration_seconds_bucket", le="0.5") == 1
    assert value(metrics, "loop_duration_seconds_bucket", le="0.25") == 0
    assert value(metrics, "pending_pods", reason="waits") == 7
    assert value(metrics, "pending_pods", reason="never") == 0
    assert value(metrics, "group_nodes", **WHERE) == 3
    assert value(metrics, "group_desired", **WHERE) == 5
    assert value(metrics, "cost_dollars_per_hour", **WHERE) == 36.72
    assert value(metrics, "capacity_failures_total", **WHERE) == 2
    assert value(metrics, "backoff_until_timestamp_seconds", **WHERE) == NOW + 300
    assert value(metrics, "actions_total", action="set-desired") == 1
    assert value(metrics, "actions_total", action="taint-node") == 1
    assert value(metrics, "errors_total", api="aws", site=GROUP.site) == 2
    assert value(metrics, "errors_total", api="kube", site="") == 1
    assert value(metrics, "stopped", reason=UNREADY) == 0


def test_failures_add_up_and_the_rest_does_not(metrics: Metrics) -> None:
    for _ in range(3):
        metrics(Cycle(at=NOW, decision=decision()))
    assert value(metrics, "capacity_failures_total", **WHERE) == 6
    assert value(metrics, "group_nodes", **WHERE) == 3


@pytest.mark.parametrize(
    ("backoffs", "until"),
    [
        ({}, 0),
        ({GROUP.name: NOW - 1}, 0),
        ({f"{GROUP.name}/{ZONES[0]}": NOW + 60}, 0),
        ({f"{GROUP.name}/{zone}": NOW + 60 * at for at, zone in enumerate(ZONES, 1)}, NOW + 60),
    ],
)
def test_a_group_is_in_back_off_when_all_of_its_zones_are(
    metrics: Metrics, backoffs: dict[str, float], until: float
) -> None:
    memory = Memory(backoffs={key: backoff(end) for key, end in backoffs.items()})
    metrics(Cycle(at=NOW, decision=decision(memory=memory)))
    assert value(metrics, "backoff_until_timestamp_seconds", **WHERE) == until


def test_why_nothing_is_written_is_shown(metrics: Metrics) -> None:
    metrics(Cycle(at=NOW, dry=True, decision=decision(stopped="5 of 9 nodes are unready")))
    assert value(metrics, "stopped", reason=UNREADY) == 1
    assert value(metrics, "stopped", reason="dry run") == 1
    assert value(metrics, "dry_run") == 1


def test_a_notice_is_shown_with_when_it_last_held(metrics: Metrics) -> None:
    labels = {"kind": "ends", "about": "node-1", "level": "warning"}
    notice = Notice("ends", "node-1", "warning", "node-1 ends")
    metrics(Cycle(at=NOW, decision=replace(decision(), notices=(notice, notice))))
    metrics(Cycle(at=NOW + 3600, decision=replace(decision(), at=NOW + 3600)))
    assert value(metrics, "notice_timestamp_seconds", **labels) == NOW
    metrics(Cycle(at=NOW + 7200, decision=replace(decision(), at=NOW + 7200)))
    assert value(metrics, "notice_timestamp_seconds", **labels) is None
    metrics(Cycle(at=NOW, decision=replace(decision(), notices=(notice,))))
    metrics(Cycle(at=NOW, leading=False))
    metrics(Cycle(at=NOW, decision=decision()))
    assert value(metrics, "notice_timestamp_seconds", **labels) is None, "another replica has led meanwhile"


def test_a_dry_run_shows_no_notice_of_what_was_not_done(metrics: Metrics) -> None:
    kinds: tuple[NoticeKind, ...] = ("broken", "setup")
    notices = tuple(Notice(kind, "node-1", "warning", "") for kind in kinds)
    metrics(Cycle(at=NOW, dry=True, decision=replace(decision(), notices=notices)))
    shown = [
        value(metrics, "notice_timestamp_seconds", kind=kind, about="node-1", level="warning")
        for kind in kinds
    ]
    assert shown == [None, NOW]


def test_there_is_an_alert_for_every_kind_of_notice() -> None:
    text = (STATIC / "alerts" / "autoscaler.yaml").read_text()
    # AutoscalerRefuses has its own metric.
    assert {*re.findall(r'kind="(\w+)"', text), "stopped"} == {*get_args(NoticeKind)}


def test_a_loop_that_failed_is_an_error_and_no_last_loop(metrics: Metrics) -> None:
    metrics(Cycle(at=NOW, error="KubeError: no answer"))
    assert value(metrics, "errors_total", api="loop", site="") == 1
    assert value(metrics, "last_loop_timestamp_seconds") == 0


def test_who_loses_the_lease_shows_nothing_of_the_groups(metrics: Metrics) -> None:
    metrics(Cycle(at=NOW, decision=decision()))
    metrics(Cycle(at=NOW + 10, leading=False))
    assert value(metrics, "group_nodes", **WHERE) is None
    assert value(metrics, "cost_dollars_per_hour", **WHERE) is None
    assert value(metrics, "leading") == 0
    assert value(metrics, "capacity_failures_total", **WHERE) == 2, "what happened has happened"


def test_alerts_and_the_dashboard_ask_for_what_there_is(metrics: Metrics) -> None:
    noticed = replace(decision(), notices=(Notice("ends", "n", "warning", "n ends"),))
    metrics(Cycle(at=NOW, decision=noticed, results=(done(TaintNode("n", "idle"), "done"),), error=None))
    metrics(Cycle(at=NOW, error="x"))
    shown: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            shown.setdefault(sample.name, set()).update(sample.labels)
    for file in (STATIC / "alerts" / "autoscaler.yaml", STATIC / "dashboards" / "autoscaler.json"):
        text = file.read_text()
        asked = set(re.findall(r"causeway_autoscaler_\w+", text))
        assert asked
        assert asked <= {*shown}
    panels = json.loads((STATIC / "dashboards" / "autoscaler.json").read_text())["panels"]
    for target in (target for panel in panels for target in panel.get("targets", [])):
        for by, name in re.findall(r"by \(([\w, ]+)\) \(\w*\(?(causeway_autoscaler_\w+)", target["expr"]):
            assert {*by.split(", ")} <= shown[name]


@pytest.fixture
def server(metrics: Metrics) -> Iterator[tuple[Server, dict[str, str | None]]]:
    wrong: dict[str, str | None] = {"healthy": None, "ready": None}
    made = Server(
        metrics.registry,
        healthy=lambda: wrong["healthy"],
        ready=lambda: wrong["ready"],
        port=0,
        address="127.0.0.1",
    )
    yield made, wrong
    made.close()


def test_figures_and_probes_are_served(
    metrics: Metrics, server: tuple[Server, dict[str, str | None]]
) -> None:
    made, wrong = server
    http = urllib3.PoolManager(retries=False, timeout=5)

    def get(path: str) -> tuple[int, str]:
        answer = http.request("GET", f"http://127.0.0.1:{made.port}{path}")
        return answer.status, answer.data.decode()

    try:
        assert get("/healthz") == (200, "ok\n")
        assert get("/metrics") == (200, generate_latest(metrics.registry).decode())
        wrong["ready"] = "empty"
        assert get("/readyz") == (503, "empty\n")
        assert get("/healthz")[0] == 200
        wrong["healthy"] = "no loop since 12:00"
        assert get("/healthz?x=1")[0] == 503
        assert get("/secrets")[0] == 404
    finally:
        http.clear()


def test_a_probe_that_breaks_is_a_failed_one() -> None:
    def broken() -> str | None:
        raise RuntimeError("no clock")

    made = Server(CollectorRegistry(), healthy=broken, ready=broken, port=0, address="127.0.0.1")
    http = urllib3.PoolManager(retries=False, timeout=5)
    try:
        answer = http.request("GET", f"http://127.0.0.1:{made.port}/healthz")
        assert (answer.status, answer.data) == (503, b"RuntimeError: no clock\n")
    finally:
        http.clear()
        made.close()


def test_the_deployment_knows_the_port() -> None:
    from infra.autoscaler.reporting import metrics

    assert rendered.PORT == metrics.PORT
