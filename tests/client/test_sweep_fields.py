"""The `sweep` field of a job file: what it takes, and all that is wrong at once, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from causeway.errors import InputError
from causeway.job import written
from causeway.jobfile import LoadedJob, load, of_trial
from causeway.search.fields import FloatRange, IntRange, LogRange

SEARCH = """\
name: lr-search
run: python train.py --lr {lr} --width {width} --opt {opt} {--momentum}
sweep:
  parameters:
    lr: {log: [1e-5, 1.0e-1]}
    width: {int: [64, 1024], step: 64}
    opt:
      - adam
      - sgd: {momentum: {float: [0, 0.99]}}
  metric: val_loss
  trials: 200
  parallel: 16
  stop: {rule: asha, min: 1, max: 27}
"""


MOMENTUM = FloatRange.model_validate({"float": [0, 0.99]})


def read(folder: Path, text: str, **parameters: str) -> LoadedJob:
    file = folder / "job.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, {}, parameters)


def problems(folder: Path, text: str) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as raised:
        read(folder, text)
    return [(each.where.rpartition("/")[2], each.field) for each in raised.value.problems]


def search(parameters: str, run: str = "python t.py {parameters}", rest: str = "") -> str:
    return f"run: {run}\nsweep:\n  metric: loss\n  trials: 20\n  parameters: {parameters}\n{rest}"


def test_a_search_is_read_with_its_defaults(tmp_path: Path) -> None:
    sweep = read(tmp_path, SEARCH).job.sweep
    assert sweep is not None
    assert sweep.parameters["lr"] == LogRange.model_validate({"log": [1e-5, 0.1]})
    assert sweep.parameters["width"] == IntRange.model_validate({"int": [64, 1024], "step": 64})
    assert sweep.parameters["opt"] == ("adam", {"sgd": {"momentum": MOMENTUM}})
    assert (sweep.goal, sweep.sampler, sweep.seed, sweep.fail_limit) == ("minimize", "tpe", 0, 10)
    assert (sweep.stop.rule, sweep.stop.max) == ("asha", 27)


def test_what_is_written_is_the_same_search(tmp_path: Path) -> None:
    job = read(tmp_path, SEARCH).job
    assert read(tmp_path, yaml.safe_dump(written(job))).job == job


def test_without_stop_nothing_is_stopped_and_a_rule_alone_will_do(tmp_path: Path) -> None:
    sweep = read(tmp_path, search("{a: [1, 2]}")).job.sweep
    assert sweep is not None
    assert sweep.stop.rule == "none"
    sweep = read(tmp_path, search("{a: [1, 2]}", rest="  stop: median\n")).job.sweep
    assert sweep is not None
    assert (sweep.stop.rule, sweep.stop.min) == ("median", 1)


def test_everything_wrong_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    text = """\
run: python train.py --lr {lr} --width {widht}
gpus: -1
sweep:
  parameters:
    lr: {log: [0, 1]}
    width: {int: [64, 8]}
    depth: {int: [1, 8], stpe: 2}
    drop: {flaot: [0, 1]}
    opt:
      - adam
      - sgd:
          momentum: {float: [1, 0.5]}
      - adam
  metric: val_loss
  trials: 0
  sampler: bayes
  stop: {rule: asha, min: 9, max: 3}
"""
    assert problems(tmp_path, text) == [
        ("job.yaml:2", "gpus.count"),
        ("job.yaml:5", "sweep.parameters.lr.log"),
        ("job.yaml:6", "sweep.parameters.width.int"),
        ("job.yaml:7", "sweep.parameters.depth.stpe"),
        ("job.yaml:8", "sweep.parameters.drop"),
        ("job.yaml:12", "sweep.parameters.opt.1.sgd.momentum.float"),
        ("job.yaml:15", "sweep.trials"),
        ("job.yaml:16", "sweep.sampler"),
        ("job.yaml:17", "sweep.stop"),
    ]


def test_an_unknown_field_of_a_parameter_names_the_one_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, search("{a: {int: [1, 8], stpe: 2}}"))
    assert raised.value.problems[0].hint.endswith(" step?")


@pytest.mark.parametrize(
    ("parameters", "run", "rest", "expected"),
    [
        ("{lr: [1, 2]}", "t --lr {rl}", "", [("1", "run"), ("5", "sweep.parameters.lr")]),
        ("{lr: [1, 2], b: [1]}", "t {lr}", "", [("5", "sweep.parameters.b")]),
        ("{o: [a, {s: {m: [1, 2]}}]}", "t {o} {m}", "", [("1", "run")]),
        ("{o: [a, {s: {m: [1, 2]}}]}", "t {o}", "", [("5", "sweep.parameters.o.1.s.m")]),
        ("{m: [1, 2], o: [a, {s: {m: [1, 2]}}]}", "t {parameters}", "", [("5", "sweep.parameters.o.1.s.m")]),
        ("{parameters: [1, 2]}", "t {parameters}", "", [("5", "sweep.parameters.parameters")]),
        ("{a: {float: [0, 1]}}", "t {a}", "  sampler: grid\n", [("5", "sweep.parameters.a")]),
        ("{o: [a, {s: {m: {log: [1, 2]}}}]}", "t {parameters}", "  sampler: grid\n",
         [("5", "sweep.parameters.o.1.s.m")]),
        ("{a: [1, 2], b: {float: [0, 1]}}", "t {a} {b}", "  sampler: cmaes\n", [("6", "sweep.sampler")]),
        ("{a: [1, 2]}", "t {a}", "  stop: {rule: median, max: 9}\n", [("6", "sweep.stop")]),
        ("{a: [1, 2]}", "t {a}", "  stop: asha\n", [("6", "sweep.stop")]),
        ("{}", "t", "", [("5", "sweep.parameters")]),
        ("{a: [1, [2]]}", "t {a}", "", [("5", "sweep.parameters.a.1")]),
        ("{a: [1, {b: {}, c: {}}]}", "t {a}", "", [("5", "sweep.parameters.a.1")]),
        ("{a: [.nan]}", "t {a}", "", [("5", "sweep.parameters.a.0")]),
        ("{a: {float: [0, 1], step: 2}}", "t {a}", "", [("5", "sweep.parameters.a")]),
        ("{a-b: [1]}", "t {a}", "", [("5", "sweep.parameters.a-b")]),
    ],
)  # fmt: skip
def test_what_is_refused(
    tmp_path: Path, parameters: str, run: str, rest: str, expected: list[tuple[str, str]]
) -> None:
    found = problems(tmp_path, search(parameters, run, rest))
    assert found == [(f"job.yaml:{line}", field) for line, field in expected]


@pytest.mark.parametrize(
    ("parameters", "rest", "word"),
    [
        ("{a: {float: [0, 1]}}", "  stop: {rule: asha, max: 27, factor: 5}\n", "factor"),
        ("{a: [1, 2]}", "", "combinations"),
        ("{a: [1, 2], b: {int: [1, 50]}}", "  sampler: grid\n", "grid"),
        ("{a: {float: [0, 1]}, o: [a, {s: {m: [1, 2]}}]}", "  sampler: gp\n", "m"),
        ("{a: {float: [0, 1]}}", "  sampler: gp\n  stop: median\n", "gp"),
    ],
)
def test_what_is_allowed_and_hardly_wanted_is_noted(
    tmp_path: Path, parameters: str, rest: str, word: str
) -> None:
    (note,) = read(tmp_path, search(parameters, rest=rest)).notes
    assert word in note.split() or word in note


def test_a_trial_has_its_parameters_in_its_commands(tmp_path: Path) -> None:
    job = read(tmp_path, SEARCH).job
    sgd = of_trial(job, {"lr": 0.001, "width": 64, "opt": "sgd", "momentum": 0.9})
    words = ["python", "train.py", "--lr", "0.001", "--width", "64", "--opt"]
    assert sgd.run.split() == [*words, "sgd", "--momentum", "0.9"]
    assert sgd.sweep is None
    adam = of_trial(job, {"lr": 0.001, "width": 64, "opt": "adam"})
    assert adam.run.split() == [*words, "adam"]


def test_values_are_quoted_and_all_are_there_as_json(tmp_path: Path) -> None:
    text = (
        "run: t {a} {--use-b} {parameters}\nroles: {worker: {run: 'w {a}'}}\n"
        "sweep: {metric: l, trials: 2, parameters: {a: ['x y; rm'], use_b: [true]}}\n"
    )
    job = of_trial(read(tmp_path, text).job, {"a": "x y; rm", "use_b": True})
    assert job.run == """t 'x y; rm' --use-b true '{"a": "x y; rm", "use_b": true}'"""
    assert job.roles["worker"].run == "w 'x y; rm'"


def test_set_leaves_a_parameter_one_value_and_what_the_choice_brings(tmp_path: Path) -> None:
    sweep = read(tmp_path, SEARCH, lr="1e-3", opt="sgd").job.sweep
    assert sweep is not None
    assert sweep.parameters["lr"] == (0.001,)
    assert sweep.parameters["opt"] == ({"sgd": {"momentum": MOMENTUM}},)
    (tmp_path / "job.yaml").write_text(SEARCH)
    with pytest.raises(InputError) as raised:
        load(tmp_path / "job.yaml", {}, {"lr": "[[1]]"})
    assert raised.value.problems[0].where == "--set lr"


def test_without_a_sweep_an_option_without_a_value_is_left_to_the_program(tmp_path: Path) -> None:
    assert read(tmp_path, "run: t {--lr} {--width}\n", lr="1").job.run == "t --lr 1 "
    assert read(tmp_path, "run: t ${--lr} {{--width}}\n").job.run == "t ${--lr} {{--width}}"
