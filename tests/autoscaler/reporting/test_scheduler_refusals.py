"""Pods that fit by our reckoning and stay where they are: people hear of it in time."""

from __future__ import annotations

from autoscaler.make import NOW, config, group, node, pod, pods, snapshot, state

from infra.autoscaler.decide import decide
from infra.autoscaler.decision import Decision
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed.snapshot import Pod
from infra.autoscaler.reporting.scheduler_refusals import AFTER

WEST = group()
CONFIG = config(WEST)
WORDS = "0/1 nodes are available: 1 node(s) had a volume zone conflict."


def loop(memory: Memory, *waiting: Pod, now: float = NOW) -> Decision:
    return decide(snapshot([node(WEST)], waiting, [state(WEST, 1, 1)], at=now), memory, CONFIG, now)


def refusals(decision: Decision) -> list[str]:
    return [each.text for each in decision.notices if each.kind == "disputed"]


def test_it_is_reported_in_the_schedulers_words_after_some_minutes() -> None:
    refused = pod("train", gpus=4, refused=WORDS)
    first = loop(Memory(), refused)
    assert first.verdicts[0].outcome == "fits"
    assert refusals(first) == []
    early = loop(first.memory, refused, now=NOW + AFTER - 1)
    assert refusals(early) == []
    (text,) = refusals(late := loop(early.memory, refused, now=NOW + AFTER))
    assert text.startswith("user-ada/train ")
    assert text.endswith(f" 5 min: {WORDS}")
    assert len(refusals(loop(late.memory, refused, now=NOW + AFTER + 60))) == 1


def test_one_that_the_scheduler_has_not_seen_yet_or_has_placed_is_no_matter() -> None:
    silent = loop(Memory(), pod("train", gpus=4))
    assert silent.memory.disputed == {}
    refused = loop(Memory(), pod("train", gpus=4, refused=WORDS))
    gone = loop(refused.memory, now=NOW + AFTER)
    assert (gone.memory.disputed, refusals(gone)) == ({}, [])


def test_one_that_waits_for_machines_is_no_matter() -> None:
    two = pods(2, gpus=4, refused=WORDS)
    found = loop(Memory(), *two)
    later = loop(found.memory, *two, now=NOW + AFTER)
    outcomes = {each.outcome for each in later.verdicts}
    assert "starting" in outcomes
    assert len(refusals(later)) <= 1
