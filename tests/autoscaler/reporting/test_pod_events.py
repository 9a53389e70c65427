"""What pods are told of themselves."""

from __future__ import annotations

from autoscaler import make

from infra.autoscaler.decide import decide
from infra.autoscaler.decision import Decision
from infra.autoscaler.memory import Backoff, Memory
from infra.autoscaler.observed.snapshot import GPU, Snapshot
from infra.autoscaler.reporting.pod_events import news

WEST, EAST, CPU = make.group(), make.group("us-east-1"), make.cpu_group()
CONFIG = make.config(WEST, EAST, CPU)
NOW = make.NOW


def _decided(gpus: int, backoffs: dict[str, Backoff]) -> tuple[Snapshot, Decision]:
    snapshot = make.snapshot(pods=make.pods(2, gpus=gpus), of=CONFIG)
    return snapshot, decide(snapshot, Memory(backoffs=backoffs), CONFIG, NOW)


def test_36_a_pod_hears_why_its_machine_does_not_start_in_the_first_region() -> None:
    bar = Backoff("capacity", "We have none.", NOW - 60, NOW - 60, NOW + 300, 1)
    events = [*news(*_decided(4, {WEST.name: bar}), CONFIG)]
    assert [each.name for each in events] == ["work-0", "work-1"]
    assert {(each.reason, each.type) for each in events} == {("MachineStartsElsewhere", "Normal")}
    (note,) = {each.note for each in events}
    assert EAST.name in note
    assert "us-west-2" in note
    assert "08:05 UTC" in note


def test_what_starts_where_it_should_hears_no_more() -> None:
    bar = Backoff("capacity", "We have none.", NOW - 60, NOW - 60, NOW + 300, 1)
    (note,) = {each.note for each in news(*_decided(0, {EAST.name: bar}), CONFIG)}
    assert CPU.name in note
    assert ";" not in note
    assert GPU not in note
