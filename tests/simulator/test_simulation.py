"""The loop, its results, the table, the plot, the command."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from simulator import worlds
from simulator.worlds import config, group, job, trace

from infra.autoscaler.decision import SetDesired, Terminate
from infra.autoscaler.observed.snapshot import Snapshot
from infra.errors import UsageError
from infra.simulator import command, example, reporting, run
from infra.simulator import trace as traces
from infra.simulator.cloud import RefusedError
from infra.simulator.conditions import Capacity
from infra.simulator.policy import Ours, perform
from infra.simulator.world import World

HOUR = 3600.0


def test_a_pod_gets_its_machine_in_the_next_loop_and_the_machine_ends_after_it() -> None:
    result = run(config(), trace(job(submit=100, seconds=1800)))
    # 100 is a loop; the group reacts in 6 s, the node is there in 100, its GPUs in 20.
    assert result.waits == (126,)
    assert result.finished == 1
    assert result.left == 0
    assert result.ended_busy == {}
    # 12 USD an hour for 26 minutes of boot and work and ten to thirteen idle ones.
    assert 12 * (126 + 1800 + 540) / 3600 < result.cost < 12 * (126 + 1800 + 780) / 3600
    assert result.used == pytest.approx(0.5)


def test_no_capacity_moves_on_within_a_loop_of_the_failure() -> None:
    asked = trace(job(pods=8), capacity=(Capacity("us-west-2", 0, 8 * HOUR, 1),))
    result = run(config(), asked)
    # Four pods have the one machine. The others wait for the failure, the next loop and a boot elsewhere.
    assert result.waits[:4] == (126,) * 4
    assert all(wait <= 126 + 20 for wait in result.waits)


def test_loops_in_which_nothing_can_have_changed_are_left_out_and_change_nothing() -> None:
    asked = trace(*(job(f"job-{n}", 40 * n, 900 + 7 * n, pods=n % 3 + 1) for n in range(30)))
    settings = config()
    quick = run(settings, asked)

    class Every(Ours):
        def loop(self, world: World, snapshot: Snapshot, now: float) -> float:
            super().loop(world, snapshot, now)
            return now

    slow = run(settings, asked, Every(settings))
    assert slow.loops > 3 * quick.loops
    assert (quick.waits, quick.writes) == (slow.waits, slow.writes)
    # An action that is due between two loops may be one loop later or earlier than when all are run.
    assert quick.cost == pytest.approx(slow.cost, rel=0.01)


def test_the_same_inputs_give_the_same_result() -> None:
    asked = trace(*(job(f"job-{n}", 100 * n) for n in range(10)), boot_spread=0.5, stillborn=0.1)
    first, second = run(config(), asked), run(config(), asked)
    assert (first.waits, first.cost, first.samples) == (second.waits, second.cost, second.samples)


def test_work_that_fits_nowhere_is_counted_as_waiting() -> None:
    result = run(config(), trace(job(gpus=64), job("small", 10)), until=HOUR)
    assert result.finished == 0 + 1
    assert result.quantile(1.0) == HOUR


def test_quantiles_are_nearest_ranks() -> None:
    result = run(config(), trace(job()), until=HOUR)
    many = replace(result, waits=tuple(float(n) for n in range(1, 101)))
    assert [many.quantile(share) for share in (0.0, 0.5, 0.95, 1.0)] == [1, 50, 95, 100]
    assert replace(result, waits=()).quantile(0.5) == 0


def test_the_executor_looks_again_before_it_writes() -> None:
    settings = config(group())
    there = World(settings, trace(job(seconds=9000)))
    there.set_desired("gpu", 2)
    there.advance(there.now + 300)
    state = there.snapshot().groups["gpu"]
    perform(there, SetDesired("gpu", was=2, desired=0, reason=""), there.now)
    assert there.snapshot().groups["gpu"].desired == 2  # never below what is present
    perform(there, SetDesired("gpu", was=5, desired=9, reason=""), there.now)
    assert there.snapshot().groups["gpu"].desired == 2  # somebody else has written
    busy = next(pod.node for pod in there.snapshot().pods)
    instance = next(node.instance for node in there.snapshot().nodes if node.name == busy)
    with pytest.raises(RefusedError, match="holds work"):
        perform(there, Terminate("gpu", instance, busy, ""), there.now)
    idle = next(each.id for each in state.instances if each.id != instance)
    perform(there, Terminate("gpu", idle, f"ip-{idle[2:]}", ""), there.now)
    assert there.snapshot().groups["gpu"].desired == 1


def test_the_table_and_the_figures_say_the_same() -> None:
    result = run(config(), trace(job(submit=100)))
    out = io.StringIO()
    Console(file=out, width=200).print(reporting.report(result))
    assert "2:06" in out.getvalue()
    figures = reporting.plain(result)
    assert figures["wait_p50"] == 126
    assert figures["unfinished"] == 0
    json.dumps(figures)


def test_durations_are_short() -> None:
    assert [reporting.duration(each) for each in (0, 45, 665, 3600, 12000, 90000)] == [
        "0:00",
        "0:45",
        "11:05",
        "1h00",
        "3h20",
        "25h00",
    ]


def test_a_plot_is_the_same_file_each_time(tmp_path: Path) -> None:
    result = run(config(), trace(job(submit=100)))
    for name in ("a.svg", "b.svg"):
        reporting.plot(result, tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert text.count("<svg") == 1


def test_the_command_runs_a_trace_with_a_configuration(tmp_path: Path) -> None:
    asked, settings, plot = tmp_path / "t.jsonl", tmp_path / "c.json", tmp_path / "p.svg"
    worlds.write(asked, trace(job()))
    settings.write_bytes(msgspec.json.encode(config()))
    said = io.StringIO()
    assert command.simulate(asked, config=settings, plot=plot, as_json=True, out=said) == 0
    assert json.loads(said.getvalue())["pods"] == 1
    assert plot.stat().st_size > 1000
    out = io.StringIO()
    assert command.simulate(asked, config=settings, out=out) == 0
    assert "USD" in out.getvalue()


def test_the_command_says_when_work_was_left_undone_and_what_it_cannot_do(tmp_path: Path) -> None:
    asked = tmp_path / "t.jsonl"
    worlds.write(asked, trace(job(gpus=64, labels={"no": "such"})))
    assert command.simulate(asked, until=0.05, out=io.StringIO()) == 1
    with pytest.raises(UsageError, match=r"\.svg, \.png or \.pdf"):
        command.simulate(asked, plot=tmp_path / "p.txt")
    with pytest.raises(UsageError, match=r"gone\.jsonl"):
        command.simulate(tmp_path / "gone.jsonl")


def test_the_shipped_trace_begins_well() -> None:
    """The first day and a half: single GPUs are in the lab, a sweep gets its machines within minutes."""
    asked = traces.read(command.BUNDLED)
    result = run(example.config(), asked, until=1.5 * 86400)
    assert result.quantile(0.95) < 600
    assert result.by_choice == 0
    assert result.left == 0 or result.finished < result.pods
