"""The model of Kueue, by the scenarios that the real one passes too (`test_kueue`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from autoscaler.admissions import PRIORITIES, SCENARIOS, Capacity, End, Scenario, Submit, spec

from infra.autoscaler.observed.snapshot import GPU, Shape
from infra.commands.autoscaler import simulating
from infra.simulator.event_queue import Calendar
from infra.simulator.kueue import Kueue, Rules, Workload


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    found = simulating.rules(spec(tmp_path_factory.mktemp("queues")))
    assert found is not None
    return found


class Idle:
    """A job whose pods leave at once."""

    def __init__(self) -> None:
        self.evicted = 0

    def begin(self, shape: Shape, request: str | None) -> None:
        pass

    def suspend(self, gone: Callable[[], None]) -> None:
        gone()

    def ready(self) -> bool:
        return True


class Model:
    """A scenario's runner."""

    def __init__(self, rules: Rules) -> None:
        self.calendar = Calendar()
        self.kueue = Kueue(rules, self.calendar, lambda choice, workload: True)
        self.workloads: dict[str, Workload] = {}

    def do(self, event: Submit | Capacity | End) -> None:
        match event:
            case Submit():
                self._submit(event)
            case End(job=job):
                workload = self.workloads[job]
                self.kueue.finish(workload, workload.count)
            case Capacity(pool=pool, there=there):
                self.kueue.hold(pool, on=not there)
                waiting = [] if there else [*self.kueue.requests.items()]
                for key, gang in waiting:
                    if dict(gang.sets[0].shape.selector)["causeway.dev/pool"] == pool:
                        self.kueue.answer(key, "Failed")
        self.calendar.advance(self.calendar.now + 60)

    def have(self, job: str) -> str:
        choice = self.workloads[job].choice
        return choice.flavor.name if choice is not None else ""

    def _submit(self, event: Submit) -> None:
        namespace = f"user-{event.job.partition('/')[0]}"
        amounts = {"cpu": event.cpu * 1000, "memory": 1 << 30, GPU: event.gpus}
        shape = Shape(
            namespace,
            tuple(sorted((name, amount) for name, amount in amounts.items() if amount)),
            selector=(("causeway.dev/site", event.site),) if event.site else (),
        )
        workload = self.workloads[event.job] = Workload(
            event.job,
            namespace,
            self.kueue.rules.queue_of(namespace),
            shape,
            event.pods,
            self.calendar.now,
            priority=PRIORITIES[event.priority],
        )
        self.kueue.submit(workload, Idle())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_the_model_admits_as_the_real_one(rules: Rules, scenario: Scenario) -> None:
    model = Model(rules)
    for step in scenario.steps:
        model.do(step.event)
        assert {job: model.have(job) for job in step.have} == step.have, step.event
    assert model.kueue.preempted == scenario.preempted
