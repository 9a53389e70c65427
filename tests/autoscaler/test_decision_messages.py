"""What people read of a decision, for a reader: verdicts, obstacles, notices, pods that are not judged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from autoscaler import make
from autoscaler.make import NOW, P3, changed, gang, group, node, pod, pods, shape, state
from golden_folders import assert_text

from infra.autoscaler.config import Config, PricedType
from infra.autoscaler.decide import decide
from infra.autoscaler.decision import Answer, Decision, SetDesired, TaintNode, Verdict
from infra.autoscaler.launch_failures.status_messages import CLASSES
from infra.autoscaler.memory import Backoff, Memory
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.snapshot import (
    DEVICES,
    GPU,
    Attachments,
    NodeTerm,
    Pod,
    PodTerm,
    Spread,
)
from infra.autoscaler.reasons import ObstacleCode, Reason, Request, WorkCode
from infra.autoscaler.reporting import availability, sentences, verdict_table
from infra.autoscaler.reporting.explain import explain

MESSAGES = Path(__file__).parents[1] / "messages" / "autoscaler.txt"
ZONE = "topology.kubernetes.io/zone"
EBS = "ebs.csi.aws.com"
WEST, EAST, CPU = group(), group("us-east-1"), make.cpu_group()
BAR = Backoff("capacity", "none", NOW - 10, NOW - 10, NOW + 600, 1)


def loop(
    *waiting: Pod,
    of: Config | None = None,
    memory: Memory | None = None,
    now: float = NOW,
    **more: Any,
) -> Decision:
    of = of or make.config(WEST, EAST)
    return decide(make.snapshot(pods=waiting, of=of, at=now, **more), memory or Memory(), of, now)


def stated(of: Config, **fields: Any) -> Decision:
    """A pod that waits, and AWS tells this of each group."""
    groups = [changed(state(each), **fields) for each in of.groups]
    return loop(*pods(1, gpus=4), of=of, groups=groups)


def together(count: int, of: Config) -> Decision:
    """A gang whose pods need a machine each."""
    whole = gang(count=count, gpus=4)
    return loop(*pods(count, like=shape(gpus=4), gang=whole.key), of=of, gangs=[whole])


def decisions() -> Iterator[tuple[str, Decision]]:
    west, cpu = make.config(WEST), make.config(CPU)
    up: dict[str, Any] = {"nodes": [node(WEST)], "groups": [state(WEST, 1, 1)], "of": west}
    yield "fits", loop(*pods(2, gpus=1), **up)
    yield "coming", loop(*pods(8, gpus=1), groups=[state(WEST, 2)], of=west)
    yield "starting", loop(*pods(5, gpus=1))
    yield "starting, a gang", together(3, west)
    yield (
        "waits, everywhere in back-off",
        loop(
            *pods(2, gpus=4),
            memory=Memory(backoffs={WEST.name: BAR, EAST.name: changed(BAR, code="quota", until=NOW + 300)}),
        ),
    )
    yield "waits, no claim", loop(*pods(1, claims=("data",)), of=cpu)
    alone = (PodTerm(ZONE, None, ("user-ada",)),)
    yield "waits, no peers", loop(*pods(1, together=alone), of=cpu)
    yield "waits, low priority", loop(*pods(1, priority=-1), of=make.config(CPU, min_priority=0))
    yield (
        "waits, part of a gang's pods",
        loop(
            *pods(3, gpus=4, gang=make.key_of(kind="Workload")),
            of=west,
            gangs=[gang(kind="Workload", least=6, sets=())],
        ),
    )
    yield (
        "waits, a gang after its deadline",
        loop(
            *pods(3, like=shape(gpus=4), gang=make.key_of()),
            of=west,
            groups=[state(WEST, 3)],
            gangs=[gang(count=3)],
            memory=Memory(waiting={make.key_of(): NOW - 1}),
        ),
    )
    yield "never, a gang", together(21, west)
    yield (
        "never, a gang at all sites",
        loop(gangs=[gang(count=60, kind="ProvisioningRequest", condition="Accepted", across=True)]),
    )
    yield (
        "never, a request for what nothing has",
        loop(
            gangs=[
                gang(
                    like=shape(gpus=1, extra={"example.com/fpga": 1}),
                    kind="ProvisioningRequest",
                    condition="Accepted",
                )
            ]
        ),
    )
    yield "never, no machine is as large", loop(*pods(1, gpus=16))
    yield "never, nothing has the resource", loop(*pods(1, gpus=1, extra={"example.com/fpga": 1}))
    yield "devices", loop(*pods(1, extra={DEVICES: 1}), of=cpu)
    yield "placement, a label", loop(*pods(1, gpus=1, selector=(("team", "vision"),)))
    yield "placement, a zone", loop(*pods(1, gpus=1, selector=((ZONE, "us-west-2z"),)), of=west)
    yield "placement, a taint", loop(*pods(1), of=make.config(make.cpu_group(taints=(Taint("team", "x"),))))
    there = (NodeTerm((make.requires(ZONE, "In", "eu-west-1a"),)),)
    either = (NodeTerm((make.requires("team", "In", "a", "b"),)), NodeTerm((make.requires("new", "Exists"),)))
    yield "affinity", loop(*pods(1, affinity=either), of=cpu)
    yield "volume-zone", loop(*pods(1, claims=("data",)), of=cpu, claims={"user-ada/data": there})
    one = node(CPU)
    volumes = {f"user-ada/{name}": (EBS, name) for name in "ab"}
    yield (
        "volumes",
        loop(
            *pods(1, claims=("a", "b")),
            of=cpu,
            nodes=[one],
            groups=[state(CPU, 1, 1)],
            claims=dict.fromkeys(volumes, ()),
            attachments=Attachments({one.name: {EBS: 1}}, volumes, {}),
        ),
    )
    yield "gpus, maximum", loop(*pods(6, cpu=7800), of=make.config(group(taints=()), make.cpu_group(max=2)))
    yield (
        "mismatch",
        loop(
            *pods(3, gpus=4),
            of=west,
            nodes=[node(WEST, number, allocatable={**P3, GPU: 3}) for number in (1, 2)],
            groups=[state(WEST, 2, 2)],
        ),
    )
    yield "part", together(12, make.config(changed(WEST, max=8)))
    yield "unreadable", loop(*pods(1, gpus=4), of=west, groups=(), errors={"aws/us-west-2": "timed out"})
    yield "deleting", stated(west, deleting=True)
    yield "suspended", stated(west, suspended=("Launch",), protects=False, hooks=())
    yield "maximum 0", stated(west, max=0)
    yield "budget", loop(*pods(9, gpus=4), of=make.config(WEST, max_hourly_cost=50.0))
    nameless = PricedType("p9.huge", 1, 32, None, None, "on-demand-p", "spot-p")
    strange = group(pool="strange", types=(nameless,), allocatable=P3, taints=(make.GPU_TAINT,))
    yield "no-price", loop(*pods(1, gpus=1), of=make.config(strange, max_hourly_cost=500.0))
    quota = make.config(WEST, quotas={"us-west-2": {"on-demand-p": 31}})
    yield "quota", loop(*pods(1, gpus=4), of=quota)
    yield (
        "closed-zones",
        loop(
            *pods(1, selector=((ZONE, "us-west-2a"),)),
            of=cpu,
            memory=Memory(backoffs={f"{CPU.name}/us-west-2a": BAR}),
        ),
    )
    zones = [
        make.cpu_group(pool="a", zones=("us-west-2a",), max=1),
        make.cpu_group(pool="b", zones=("us-west-2b",), max=9),
    ]
    spread = (Spread(ZONE, 1, make.selector(app="db")),)
    fault = Verdict((), None, 1, "waits", (), reason=Reason("fault", what="KeyError: 'odd'"))
    yield "fault", Decision(NOW, (), Memory(), verdicts=(fault,))
    yield "rules", loop(*pods(4, cpu=15_000, labels={"app": "db"}, spread=spread), of=make.config(*zones))


def unjudged() -> Iterator[str]:
    """Pods of which a decision has no verdict."""
    for each in (
        pod(node="titan-a01"),
        pod(node="titan-a01", deleting=True),
        pod(gated=True),
        pod(nominated="titan-a02"),
        pod(owner=make.DAEMON),
        pod(),
    ):
        explained = explain(make.snapshot(pods=(each,)), Decision(NOW, (), Memory()), "user-ada/work")
        yield f"{explained.outcome}: {explained.text}"


TABLE = Decision(
    NOW,
    (SetDesired("west", 0, 4, "for 4 pods that wait"), TaintNode("a-node", "idle")),
    Memory(),
    verdicts=(
        Verdict(("a",), None, 4, "starting", ("west",), (4,), example="ada/a"),
        Verdict(
            (),
            "Job/ada/train",
            200,
            "waits",
            ("n1", "n2", "n3", "n4", "n5"),
            reason=Reason("blocked", request=Request(200, ((GPU, 1),), "a100-40gb")),
            obstacles=(
                Reason("backoff", "west", "us-west-2", what="capacity", until=NOW),
                Reason("maximum", "east", "us-east-1", limit=8),
            ),
        ),
    ),
    stopped="9 of 10 nodes are unready",
)


def tables() -> Iterator[str]:
    """As ``explain`` shows them in the controller's image: all that waits, and a pod."""
    yield verdict_table.verdicts(Decision(NOW, (), Memory()))
    yield verdict_table.verdicts(TABLE)
    waits = pod("train-0", gang="Job/ada/train")
    yield verdict_table.pod(
        explain(make.snapshot(pods=[waits], errors={"aws/eu": "down"}), TABLE, "user-ada/train-0")
    )


def lines() -> Iterator[str]:
    for title, decision in decisions():
        yield f"\n# {title}"
        for verdict in decision.verdicts:
            code = f", {verdict.reason.code}" if verdict.reason is not None else ""
            yield f"{verdict.outcome}{code}: {sentences.verdict(verdict)}"
            yield from (f"  {each.code}: {each.group} {sentences.reason(each)}" for each in verdict.obstacles)
        yield from (f"{notice.level}: {notice.text}" for notice in decision.notices)
        yield from (f"{each.reason}: {each.message}" for each in decision.actions if isinstance(each, Answer))
    yield "\n# tables"
    yield from tables()
    yield "# pods that are not judged"
    yield from unjudged()
    yield "\n# failed launches, by class"
    yield from (f"{code}: {kind.verdict}" for code, kind in CLASSES.items())
    yield "\n# why a latest start is not known"
    yield from (f"{code}: {text}" for code, text in availability.WHY.items())


def test_messages(request: pytest.FixtureRequest) -> None:
    found = [verdict for _, decision in decisions() for verdict in decision.verdicts]
    assert {each.code for verdict in found for each in verdict.obstacles} == {*get_args(ObstacleCode)}
    # A request for what nothing has is told so, and its own verdict is what no machine has.
    works = {*get_args(WorkCode)} - {"unknown-resources"}
    assert {verdict.reason.code for verdict in found if verdict.reason is not None} == works
    assert_text(
        MESSAGES, "\n".join(lines()).lstrip() + "\n", rewrite=request.config.getoption("--update-golden")
    )
