"""One pod's part of a loop's answer."""

from __future__ import annotations

import pytest
from autoscaler import make

from infra.autoscaler.decision import Decision, SetDesired, Verdict
from infra.autoscaler.memory import Memory
from infra.autoscaler.reasons import Reason, Request
from infra.autoscaler.reporting.explain import explain, plain
from infra.errors import UsageError

NOW = make.NOW
WAITS = Verdict(
    pods=("uid-train-0",),
    gang=None,
    count=1,
    outcome="waits",
    where=(),
    reason=Reason("blocked", request=Request(1, (("nvidia.com/gpu", 8),))),
    obstacles=(
        Reason("backoff", "west", "us-west-2", what="capacity", until=NOW + 300),
        Reason("size", "cpu", "us-west-2", what="nvidia.com/gpu", requested=8, limit=0),
    ),
)


def answer(*verdicts: Verdict) -> Decision:
    actions = (SetDesired("cpu", 1, 2, "for 3 pods that wait"),)
    return Decision(at=NOW, actions=actions, memory=Memory(), verdicts=verdicts)


def test_a_pod_that_waits_is_told_why_group_by_group() -> None:
    seen = make.snapshot(pods=(make.pod("train-0"),), errors={"aws/eu-west-1": "no answer"})
    found = explain(seen, answer(WAITS), "user-ada/train-0")
    assert (found.outcome, found.reason, found.obstacles) == ("waits", WAITS.reason, WAITS.obstacles)
    assert found.unknown == ("aws/eu-west-1: no answer",)
    assert [(each.group, each.desired) for each in found.changes] == [("cpu", 2)]


def test_a_gang_s_verdict_is_its_pods() -> None:
    verdict = Verdict((), "Job/user-ada/train", 2, "starting", ("gpu",), (2,))
    seen = make.snapshot(pods=(make.pod("train-1", gang="Job/user-ada/train"),))
    found = explain(seen, answer(verdict), "user-ada/train-1")
    assert (found.outcome, found.where, found.gang) == ("starting", ("gpu",), "Job/user-ada/train")


def test_json_has_codes_with_their_fields_and_sentences() -> None:
    found = explain(make.snapshot(pods=(make.pod("train-0"),)), answer(WAITS), "user-ada/train-0")
    for values in (plain(WAITS), plain(found)):
        assert values["reason"]["request"]["count"] == 1
        west, cpu = values["obstacles"]
        assert (west["code"], west["what"], west["until"]) == ("backoff", "capacity", NOW + 300)
        assert (cpu["code"], cpu["requested"], cpu["limit"], cpu["until"]) == ("size", 8, 0, None)
        assert west["text"] in values["text"]
        assert cpu["text"] not in values["text"]


def test_a_pod_that_is_not_there_gets_the_nearest_name() -> None:
    seen = make.snapshot(pods=(make.pod("train-10"),), faults={"Pod/user-ada/odd": "cpu: many"})
    with pytest.raises(UsageError, match="user-ada/train-10"):
        explain(seen, answer(), "user-ada/trian-10")
    with pytest.raises(UsageError, match="cpu: many"):
        explain(seen, answer(), "user-ada/odd")
    with pytest.raises(UsageError, match="namespace/name"):
        explain(seen, answer(), "train-10")
