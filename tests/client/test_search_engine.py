"""The engine of a search: a function of the recorded trials, whoever asks it, how often and after what."""

from __future__ import annotations

import importlib.util
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from client.search_world import World, best, halved, numbers, run, sweep_of, turn
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.errors import CausewayError
from causeway.search.engine import Engine, applied
from causeway.search.fields import Sweep
from causeway.search.ranking import ranked
from causeway.search.space import key, nth, paths, size
from causeway.search.trials import Decision, End, Parameters, Resume, Start, Trial

RANGES: dict[str, Any] = {"lr": {"log": [1e-5, 1]}, "width": {"int": [8, 64], "step": 8}}
NESTED: dict[str, Any] = {
    "lr": {"log": [1e-5, 1]},
    "opt": ["adam", {"sgd": {"momentum": {"float": [0, 0.9], "step": 0.1}, "nesterov": [True, False]}}],
}
ASHA = {"rule": "asha", "min": 1, "max": 27, "factor": 3}


def loss(parameters: Parameters, step: int) -> float:
    """The best is near lr 0.01; it falls with steps."""
    away = abs(math.log10(float(parameters["lr"])) + 2)
    return 0.1 + 0.2 * away + 0.01 * float(parameters.get("momentum", 0.5)) + 1 / step


def asha(trials: int = 30, **fields: Any) -> Sweep:
    return sweep_of(RANGES, trials=trials, stop=ASHA, **fields)


# Samplers


@pytest.mark.parametrize("sampler", ["tpe", "random", "cmaes"])
@pytest.mark.parametrize("space", [RANGES, NESTED], ids=["ranges", "nested"])
def test_parameters_are_of_the_space_and_never_the_same_twice(sampler: str, space: dict[str, Any]) -> None:
    if sampler == "cmaes" and space is NESTED:
        space = {**NESTED, "decay": {"float": [0, 1]}}
    world = World(Engine(sweep_of(space, sampler=sampler, stop=ASHA), "s"), loss, 27)
    assert run(world).kind == "done"
    assert len({key(trial.parameters) for trial in world.trials}) == len(world.trials) == 30
    for trial in world.trials:
        assert paths(world.engine.sweep.parameters, trial.parameters) is not None
        assert ("momentum" in trial.parameters) == (trial.parameters.get("opt") == "sgd")


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_a_sampler_that_learns_finds_more_than_chance(sampler: str) -> None:
    def mean(which: str) -> float:
        found = []
        for seed in range(4):
            sweep = sweep_of({**RANGES, "decay": {"float": [0, 1]}}, sampler=which, seed=seed, trials=50)

            def curve(parameters: Parameters, _: int) -> float:
                return loss(parameters, 1) + abs(float(parameters["decay"]) - 0.3)

            world = World(Engine(sweep, "s"), curve, 1, seed=seed)
            run(world)
            found.append(world.engine.value(best(world)) or math.inf)
        return sum(found) / len(found)

    assert mean(sampler) < mean("random")


@pytest.mark.parametrize("sampler", ["grid", "random", "tpe"])
def test_a_space_with_an_end_is_tried_to_it_and_the_search_ends(sampler: str) -> None:
    space = {"a": [1, "1e3", True], "b": {"int": [0, 9], "step": 4}, "o": ["x", {"y": {"m": [1, 2, 3]}}]}
    sweep = sweep_of(space, sampler=sampler, trials=500)
    assert size(sweep.parameters) == 3 * 3 * 4
    world = World(Engine(sweep, "s"), lambda p, _: float(p["b"]), 1)
    assert run(world).kind == "done"
    every = {key(nth(sweep.parameters, index)) for index in range(36)}
    assert len(every) == 36
    assert sorted(key(trial.parameters) for trial in world.trials) == sorted(every)


@pytest.mark.parametrize("sampler", ["random", "grid"])
def test_random_and_grid_are_functions_of_the_seed_and_the_number(sampler: str) -> None:
    space = {"a": [*range(40)], "b": [*range(40)]}
    if sampler == "random":
        space["lr"] = {"log": [1e-5, 1]}  # type: ignore[assignment]
    one = World(Engine(sweep_of(space, sampler=sampler, parallel=16), "s"), lambda p, _: float(p["a"]), 3)
    more = sweep_of(space, sampler=sampler, parallel=2, trials=50)
    two = World(Engine(more, "s"), lambda p, _: -float(p["b"]), 1)
    run(one)
    run(two)
    assert [trial.parameters for trial in one.trials] == [trial.parameters for trial in two.trials][:30]
    other = World(Engine(sweep_of(space, sampler=sampler, seed=1), "s"), lambda p, _: 0.0, 1)
    turn(other)
    assert other.trials[0].parameters != one.trials[0].parameters


def test_trials_of_another_space_do_not_break_a_search() -> None:
    old = (
        Trial(1, {"depth": 3}, ((1, 0.1),), "done"),
        Trial(2, {"lr": 5.0, "width": 8}, ((1, 0.2),), "done"),
    )
    found = Engine(sweep_of(RANGES), "s").propose(old)
    assert isinstance(found, Start)
    assert found.number == 3


@pytest.mark.parametrize("sampler", ["grid", "random", "tpe"])
def test_a_space_that_was_changed_is_tried_to_its_end(sampler: str) -> None:
    old = World(Engine(sweep_of({"a": [*range(20, 25)]}, sampler=sampler), "s"), lambda p, _: 1.0, 1)
    run(old)
    world = replace(old, engine=Engine(sweep_of({"a": [*range(9)]}, sampler=sampler), "s"))
    assert run(world).kind == "done"
    assert sorted(int(trial.parameters["a"]) for trial in world.trials) == [*range(9), *range(20, 25)]


_GP = """
import math
from causeway.search.engine import Engine, applied
from causeway.search.fields import Sweep
from causeway.search.trials import Trial
space = {"lr": {"log": [1e-5, 1]}, "opt": ["a", {"b": {"momentum": {"float": [0, 1]}}}]}
sweep = Sweep.model_validate({"parameters": space, "metric": "loss", "trials": 40, "sampler": "gp"})
engine, trials = Engine(sweep, "s"), ()
for number in range(1, 13):
    found = engine.propose(trials).parameters
    trials = (*trials, Trial(number, found, ((1, abs(math.log10(found["lr"]) + 2)),), "done"))
thirteen = engine.propose(trials)
assert engine.propose(trials) == thirteen
assert 1e-3 < thirteen.parameters["lr"] < 1e-1, thirteen
assert engine.propose(applied(trials, thirteen)).parameters != thirteen.parameters
"""


def test_gp_learns_where_torch_is() -> None:
    root = Path(__file__).parents[2]
    found = [*root.glob(f".venv-frameworks/lib/python3.{sys.version_info.minor}/site-packages/torch")]
    if not found:
        pytest.skip("no .venv-frameworks: 'make setup-runs' makes it")
    folders = [str(root / "client"), str(found[0].parent)]
    subprocess.run(
        [sys.executable, "-c", _GP], env={"PYTHONPATH": ":".join(folders), "OMP_NUM_THREADS": "1"}, check=True
    )


def test_gp_without_its_libraries_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    with pytest.raises(CausewayError, match="torch"):
        Engine(sweep_of(RANGES, sampler="gp"), "s").propose(())


# Decisions are functions of the record


@st.composite
def records(draw: st.DrawFn) -> tuple[Engine, tuple[Trial, ...]]:
    """A search at any moment, whose trials came about by simulation."""
    rule = draw(st.sampled_from(["asha", "hyperband", "median", "none"]))
    stop = {
        "rule": rule,
        **({"max": 27, "min": draw(st.integers(1, 3))} if rule in ("asha", "hyperband") else {}),
    }
    sweep = sweep_of(
        RANGES,
        trials=draw(st.integers(1, 20)),
        parallel=draw(st.integers(1, 9)),
        sampler=draw(st.sampled_from(["random", "tpe"])),
        goal=draw(st.sampled_from(["minimize", "maximize"])),
        seed=draw(st.integers(0, 99)),
        stop=stop,
    )
    failing = draw(st.sampled_from([0.0, 0.1, 0.9]))
    world = World(
        Engine(sweep, "s"),
        lambda p, step: math.nan if float(p["lr"]) > 0.5 else loss(p, step),
        27,
        seed=sweep.seed,
        resumable=draw(st.booleans()),
        failing=lambda trial: random.Random(f"{trial.number}/{trial.last_step}").random() < failing,
    )
    for _ in range(draw(st.integers(0, 120))):
        if turn(world):
            break
        world.step()
    return world.engine, world.trials


@settings(max_examples=40, deadline=None)
@given(records(), st.randoms(use_true_random=False))
def test_the_order_of_trials_and_of_their_reports_does_not_matter(
    record: tuple[Engine, tuple[Trial, ...]], draw: random.Random
) -> None:
    engine, trials = record
    shuffled = [replace(each, reports=tuple(draw.sample(each.reports, len(each.reports)))) for each in trials]
    draw.shuffle(shuffled)
    assert engine.judge(shuffled) == engine.judge(trials)
    assert engine.propose(shuffled) == engine.propose(trials)
    assert engine.end(shuffled) == engine.end(trials)
    ranks = [[each.number for each in ranked(engine.sweep, some)] for some in (shuffled, trials)]
    assert ranks[0] == ranks[1]


@settings(max_examples=40, deadline=None)
@given(records())
def test_what_was_logged_again_after_a_preemption_counts_for_nothing(
    record: tuple[Engine, tuple[Trial, ...]],
) -> None:
    engine, trials = record
    again = tuple(
        replace(each, reports=(*each.reports, *((s, -1e9) for s, _ in each.reports))) for each in trials
    )
    assert engine.judge(again) == engine.judge(trials)
    assert engine.propose(again) == engine.propose(trials)


@settings(max_examples=40, deadline=None)
@given(records())
def test_a_rung_is_judged_once(record: tuple[Engine, tuple[Trial, ...]]) -> None:
    engine, trials = record
    decisions = engine.judge(trials)
    assert all(each.step > trials[each.number - 1].judged for each in decisions)
    for decision in decisions:
        trials = applied(trials, decision)
    assert engine.judge(trials) == ()


@settings(max_examples=30, deadline=None)
@given(records())
def test_a_search_never_runs_more_than_parallel_and_comes_to_an_end(
    record: tuple[Engine, tuple[Trial, ...]],
) -> None:
    engine, trials = record
    assert sum(each.state == "running" for each in trials) <= engine.sweep.parallel
    numbers = [each.number for each in trials]
    assert numbers == list(range(1, len(trials) + 1))
    assert len(trials) <= engine.sweep.trials
    if engine.end(trials):
        assert engine.propose(trials) is None
    # It goes on, or something runs that is waited for.
    elif engine.propose(trials) is None:
        assert any(each.state == "running" for each in trials)


# Early stopping


def reached(number: int, value: float, step: int = 1, **fields: Any) -> Trial:
    return Trial(number, {"lr": 0.1, "width": 8}, ((step, value),), resumable=True, **fields)


def actions(decisions: tuple[Decision, ...]) -> list[tuple[int, str, int]]:
    return [(each.number, each.action, each.step) for each in decisions]


def test_one_of_three_goes_on_at_a_rung_and_the_others_pause() -> None:
    engine = Engine(asha(), "s")
    trials = tuple(reached(number, float(number)) for number in range(1, 7))
    assert actions(engine.judge(trials)) == [
        (1, "pass", 1), (2, "pass", 1), (3, "pause", 1), (4, "pause", 1), (5, "pause", 1), (6, "pause", 1),
    ]  # fmt: skip


def test_with_maximize_more_is_better() -> None:
    engine = Engine(asha(goal="maximize"), "s")
    trials = tuple(reached(number, float(number)) for number in (1, 2, 3))
    assert actions(engine.judge(trials)) == [(1, "pause", 1), (2, "pause", 1), (3, "pass", 1)]


def test_a_trial_that_paused_goes_on_once_it_is_among_the_best() -> None:
    engine = Engine(asha(parallel=3), "s")
    first = reached(1, 1.0)
    (decision,) = engine.judge((first,))
    assert decision.action == "pause"
    trials = applied((first,), decision)
    assert isinstance(engine.propose(trials), Start)
    trials = (*trials, reached(2, 2.0), reached(3, 3.0))
    for decision in engine.judge(trials):
        trials = applied(trials, decision)
    assert engine.propose(trials) == Resume(1, 1)
    trials = applied(trials, Resume(1, 1))
    assert trials[0].state == "running"
    assert engine.judge(trials) == ()


def test_a_trial_without_a_checkpoint_is_not_resumed_and_among_few_it_goes_on() -> None:
    engine = Engine(asha(parallel=3), "s")
    trials = tuple(replace(reached(number, float(number)), resumable=False) for number in (1, 2))
    assert actions(engine.judge(trials)) == [(1, "pass", 1), (2, "pass", 1)]
    paused = tuple(replace(each, state="paused", judged=1) for each in trials)
    assert isinstance(engine.propose(paused), Start)


def test_what_is_no_number_pauses_and_is_never_resumed() -> None:
    engine = Engine(asha(trials=3), "s")
    trials = tuple(reached(number, math.nan) for number in (1, 2, 3))
    for decision in engine.judge(trials):
        assert decision.action == "pause"
        trials = applied(trials, decision)
    assert engine.propose(trials) is None
    assert (engine.end(trials) or End("failed", "")).kind == "done"
    assert engine.best(trials) is None


def test_who_reports_seldom_is_judged_at_the_first_report_after_a_rung() -> None:
    engine = Engine(asha(), "s")
    trials = tuple(reached(number, float(number), step=10) for number in (1, 2, 3))
    assert actions(engine.judge(trials)) == [
        (1, "pass", 1), (1, "pass", 3), (1, "pass", 9), (2, "pause", 1), (3, "pause", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("trials", [1, 2, 5])
def test_one_trial_is_trained_to_its_end_however_few_there_are(trials: int) -> None:
    world = World(Engine(asha(trials=trials), "s"), loss, 27)
    run(world)
    assert [each.state for each in world.trials].count("done") >= 1
    assert best(world).state == "done"


def test_brackets_of_hyperband_begin_at_different_rungs() -> None:
    sweep = sweep_of(RANGES, trials=60, sampler="random", stop={**ASHA, "rule": "hyperband"})
    world = World(Engine(sweep, "s"), loss, 27)
    run(world)
    first: dict[int, int] = {}
    for move in world.moves:
        if isinstance(move, Decision):
            first.setdefault(move.number, move.step)
    unjudged = {trial.number for trial in world.trials} - {*first}
    assert {*first.values()} == {1, 3, 9}
    assert unjudged
    assert all(world.trials[number - 1].state == "done" for number in unjudged)


def test_median_stops_what_is_worse_than_half_of_whole_trials() -> None:
    engine = Engine(sweep_of(RANGES, stop={"rule": "median", "min": 2}), "s")
    curves = [tuple((step, number - 0.1 * step) for step in range(1, 6)) for number in range(1, 7)]
    whole = tuple(
        Trial(number, {"lr": 0.1, "width": 8}, curve, "done") for number, curve in enumerate(curves, 1)
    )
    bad = Trial(7, {"lr": 0.2, "width": 8}, tuple((step, 5.0) for step in range(1, 5)))
    good = Trial(8, {"lr": 0.3, "width": 8}, tuple((step, 1.0) for step in range(1, 5)))
    assert actions(engine.judge((*whole, bad, good))) == [(7, "stop", 2), (8, "pass", 4)]
    assert engine.judge((*whole, replace(good, judged=4))) == ()


def test_wilcoxon_stops_what_is_worse_part_by_part() -> None:
    engine = Engine(sweep_of(RANGES, stop={"rule": "wilcoxon", "min": 4}), "s")
    draw = random.Random(1)
    noise = [draw.gauss(0, 0.01) for _ in range(20)]
    whole = Trial(1, {"lr": 0.1, "width": 8}, tuple((step, 1 + noise[step]) for step in range(20)), "done")
    bad = Trial(2, {"lr": 0.2, "width": 8}, tuple((step, 1.5 + noise[-step]) for step in range(8)))
    good = Trial(3, {"lr": 0.3, "width": 8}, tuple((step, 0.5 + noise[-step]) for step in range(8)))
    assert actions(engine.judge((whole, bad, good))) == [(2, "stop", 4), (3, "pass", 7)]
    assert engine.value(whole) == pytest.approx(1 + sum(noise) / 20)


@pytest.mark.parametrize("resumable", [True, False], ids=["resumed", "without checkpoints"])
def test_halving_finds_one_of_the_best_curves_with_a_fifth_of_their_steps(resumable: bool) -> None:
    """`invoke bench --only search` has 200 seeds."""
    found = [halved(seed, resumable=resumable) for seed in range(12)]
    assert sum(each.share for each in found) / len(found) <= 0.20
    assert max(each.share for each in found) <= 0.30
    assert sum(each.place <= 5 for each in found) >= 11


# The end


def failed(number: int, cause: str = "") -> Trial:
    return Trial(number, {"lr": 0.1 / number, "width": 8}, (), "failed", cause=cause)


def test_failures_one_after_the_other_end_the_search_with_the_first_cause() -> None:
    engine = Engine(sweep_of(RANGES, fail_limit=3), "s")
    trials = (reached(1, 1.0, state="done"), failed(2, "because"), failed(3, "y"), failed(4, "y"))
    assert engine.end(trials[:3]) is None
    end = engine.end(trials)
    assert end is not None
    assert end.kind == "failed"
    assert "because" in end.reason
    assert engine.propose(trials) is None
    resumed = replace(engine, since=4)
    assert resumed.end(trials) is None
    assert isinstance(resumed.propose(trials), Start)


def test_a_trial_that_works_breaks_a_row_of_failures() -> None:
    engine = Engine(sweep_of(RANGES, fail_limit=3), "s")
    assert engine.end((failed(1), failed(2), reached(3, 1.0), failed(4))) is None
    silent = Trial(3, {"lr": 0.1, "width": 8})
    assert engine.end((failed(1), failed(2), silent, failed(4))) is not None


def test_a_trial_that_ends_without_the_metric_counts_as_a_failure() -> None:
    engine = Engine(sweep_of(RANGES, fail_limit=2), "s")
    trials = tuple(Trial(number, {"lr": 0.1, "width": 8 * number}, (), "done") for number in (1, 2))
    end = engine.end(trials)
    assert end is not None
    assert end.kind == "failed"


def test_a_metric_that_never_comes_is_told() -> None:
    engine = Engine(asha(), "s")
    assert engine.notes((Trial(1, {}, seen=0),)) == ()
    (note,) = engine.notes((Trial(1, {}, seen=4),))
    assert "loss" in note
    assert engine.notes((Trial(1, {}, seen=4), reached(2, 1.0))) == ()


def test_optuna_is_loaded_where_it_is_asked_alone() -> None:
    """`causeway --help` has to answer at once."""
    code = "import causeway.jobfile, causeway.search.engine, sys; print({'optuna', 'numpy'} & {*sys.modules})"
    root = Path(__file__).parents[2] / "client"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# What was found


def test_what_matters_has_the_largest_share() -> None:
    sweep = sweep_of({**NESTED, "idle": {"float": [0, 1]}}, sampler="random", trials=80)
    world = World(Engine(sweep, "s"), loss, 1)
    assert world.engine.importance(()) == {}
    run(world)
    shares = world.engine.importance(world.trials)
    assert next(iter(shares)) == "lr"
    assert sum(shares.values()) == pytest.approx(1)
    assert {*shares} >= {"lr", "opt", "momentum", "idle"}


def test_the_best_is_a_whole_trial_once_there_is_one() -> None:
    engine = Engine(asha(), "s")
    trials = (reached(1, 0.5, state="paused", judged=1), reached(2, 0.9, step=27, state="done"))
    assert (engine.best(trials) or trials[0]).number == 2
    assert (engine.best(trials[:1]) or trials[1]).number == 1
    assert engine.counts(trials) == {"running": 0, "done": 1, "paused": 1, "stopped": 0, "failed": 0}


# A conductor that is killed


def killed_at(world: World, moment: int) -> Iterator[None]:
    """A conductor that works until it has recorded so many moves; what it was about to record is lost."""
    engine = Engine(world.engine.sweep, "s")
    while True:
        for decision in engine.judge(world.trials):
            if len(world.moves) == moment:
                return
            world.record(decision)
        while move := engine.propose(world.trials):
            if len(world.moves) == moment:
                return
            world.record(move)
        if engine.end(world.trials):
            return
        world.step()
        yield


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_conductor_killed_at_25_points_finds_the_same_with_no_trial_twice_and_none_lost(
    sampler: str,
) -> None:
    def fresh() -> World:
        return World(Engine(asha(trials=40, sampler=sampler, seed=3), "s"), loss, 27)

    calm = fresh()
    run(calm)
    world = fresh()
    for moment in sorted(random.Random(4).sample(range(len(calm.moves)), 25)):
        for _ in killed_at(world, moment):
            pass
        assert len(world.moves) == moment
    run(world)
    assert world.trials == calm.trials
    assert numbers(world.moves, Start) == list(range(1, 41))
    assert best(world) == best(calm)
