"""One pod's part of a loop's answer."""

from __future__ import annotations

import pytest
from autoscaler import make

from infra.autoscaler.decision import Decision, Obstacle, SetDesired, Verdict
from infra.autoscaler.memory import Memory
from infra.autoscaler.reporting.explain import explain
from infra.errors import UsageError

NOW = make.NOW
WAITS = Verdict(
    pods=("uid-train-0",),
    gang=None,
    count=1,
    outcome="waits",
    where=(),
    text="waits for 8 x A100: us-west-2 has no capacity until 14:05",
    obstacles=(Obstacle("west", "backoff", "no capacity", NOW + 300), Obstacle("cpu", "size", "no cards")),
)


def answer(*verdicts: Verdict) -> Decision:
    actions = (SetDesired("cpu", 1, 2, "for 3 pods that wait"),)
    return Decision(at=NOW, actions=actions, memory=Memory(), verdicts=verdicts)


def test_a_pod_that_waits_is_told_why_group_by_group() -> None:
    seen = make.snapshot(pods=(make.pod("train-0"),), errors={"aws/eu-west-1": "no answer"})
    found = explain(seen, answer(WAITS), "user-ada/train-0")
    assert (found.outcome, found.text) == ("waits", WAITS.text)
    assert [each.group for each in found.obstacles] == ["west", "cpu"]
    assert found.unknown == ("aws/eu-west-1: no answer",)
    assert [(each.group, each.desired) for each in found.changes] == [("cpu", 2)]


def test_a_gang_s_verdict_is_its_pods() -> None:
    verdict = Verdict((), "Job/user-ada/train", 2, "starting", ("gpu",), "starts 2 machines")
    seen = make.snapshot(pods=(make.pod("train-1", gang="Job/user-ada/train"),))
    found = explain(seen, answer(verdict), "user-ada/train-1")
    assert (found.outcome, found.where, found.gang) == ("starting", ("gpu",), "Job/user-ada/train")


def test_a_pod_that_is_not_there_gets_the_nearest_name() -> None:
    seen = make.snapshot(pods=(make.pod("train-10"),), faults={"Pod/user-ada/odd": "cpu: many"})
    with pytest.raises(UsageError, match="user-ada/train-10"):
        explain(seen, answer(), "user-ada/trian-10")
    with pytest.raises(UsageError, match="cpu: many"):
        explain(seen, answer(), "user-ada/odd")
    with pytest.raises(UsageError, match="namespace/name"):
        explain(seen, answer(), "train-10")
