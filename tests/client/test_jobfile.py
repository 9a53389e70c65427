"""Job files: fields, options over them, and everything that is wrong, at once and with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from causeway.errors import InputError, Problem
from causeway.job import Code, Gpus, Job, seeded, written
from causeway.jobfile import LoadedJob, load


def read(folder: Path, text: str, **options: object) -> LoadedJob:
    file = folder / "job.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, options, {})


def problems(folder: Path, text: str, **options: object) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as raised:
        read(folder, text, **options)
    return [(each.where.rpartition("/")[2], each.field) for each in raised.value.problems]


def test_a_command_is_all_that_a_job_needs(folder: Path) -> None:
    loaded = load(None, {"run": ["python", "train.py", "--name", "two words"]}, {}, folder=folder)
    assert loaded.job == Job(name="project", run="python train.py --name 'two words'")
    assert (loaded.job.gpus.count, loaded.job.nodes, loaded.job.time) == (1, 1, 86400)


def test_every_field_of_the_design_is_read(folder: Path) -> None:
    job = read(
        folder,
        """
        version: 1
        name: gpt
        run: |
          pip list
          python -m gpt.train
        code: {path: src, exclude: [data/], limit: 1 GiB}
        image: pytorch
        python: uv.lock
        gpus: {count: 8, model: a100, memory: 40 GiB, class: new, interconnect: efa}
        nodes: 4
        cpus: 12
        memory: 200 GiB
        shm: 64 GiB
        launcher: torchrun
        priority: high
        group: vision
        time: 3d
        where: {sites: [us-west-2], near: zone, spot: false}
        env: {SEED: 1, DEBUG: false}
        secrets: {wandb: WANDB_API_KEY}
        mounts: {home: false}
        restarts: 0
        checkpoints: {keep: 3, metric: val_loss, goal: maximize, sharded: true}
        tracking: {experiment: ablations}
        stall: 30m
        grace: 5m
        ports: [8080]
        """,
    ).job
    assert job.gpus.class_ == "new"
    assert job.gpus.memory == 40 << 30
    assert job.env == {"SEED": "1", "DEBUG": "false"}
    assert (job.time, job.grace, job.stall) == (3 * 86400, 300, 1800)
    assert (job.checkpoints.keep, job.checkpoints.metric, job.checkpoints.sharded) == (3, "val_loss", True)
    assert isinstance(job.code, Code)
    assert job.code.limit == 1 << 30


def test_everything_wrong_is_said_at_once_with_its_line(folder: Path) -> None:
    text = (
        "name: No_Label\nrun: x\ngpus:\n  coutn: 8\nmemory: 40\n"
        "env:\n  MASTER_PORT: 1\nlauncher: mpi\nnode: 2\n"
    )
    assert problems(folder, text) == [
        ("job.yaml:1", "name"),
        ("job.yaml:4", "gpus.coutn"),
        ("job.yaml:5", "memory"),
        ("job.yaml:7", "env.MASTER_PORT"),
        ("job.yaml:8", "launcher"),
        ("job.yaml:9", "node"),
    ]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("run: x\nnode: 2\n", "nodes"),
        ("run: x\ngpus: {modle: t4}\n", "model"),
        ("run: x\nwhere: {site: a}\n", "sites"),
        ("run: x\ncheckpoints: {kep: 3}\n", "keep"),
        ("run: x\ntracking: {experment: a}\n", "experiment"),
    ],
)
def test_an_unknown_field_names_the_one_that_was_meant(folder: Path, text: str, hint: str) -> None:
    with pytest.raises(InputError) as raised:
        read(folder, text)
    (problem,) = raised.value.problems
    assert problem.hint == f"did you mean {hint}?"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("run: x\nroles: {worker: 2}\nnodes: 2\n", ""),
        ("gpus: 1\n", "run"),
        ("run: x\ntime: 24\n", "time"),
        ("run: x\ncode: true\n", "code"),
        ("run: x\ngpus: -1\n", "gpus.count"),
        ("run: x\ngpus: '4'\n", "gpus"),
        ("run: x\nroles: {master: 1}\n", "roles.master"),
        ("run: x\ncheckpoints: {keep: 0}\n", "checkpoints.keep"),
        ("run: x\ncheckpoints: {goal: least}\n", "checkpoints.goal"),
        ("run: x\ncheckpoints: 3\n", "checkpoints"),
        ("run: x\ntracking: 3\n", "tracking"),
        ("run: x\ntracking: {experiment: ''}\n", "tracking.experiment"),
        ("run: x\nenv: {MLFLOW_RUN_ID: a}\n", "env.MLFLOW_RUN_ID"),
        ("run: [a, b\n", ""),
        ("- run\n", ""),
        ("run: x\nrun: y\n", "run"),
        ("run: \xff\n", ""),
    ],
)
def test_what_is_refused(folder: Path, text: str, field: str) -> None:
    if "\xff" in text:
        (folder / "job.yaml").write_bytes(text.encode("latin-1"))
        with pytest.raises(InputError):
            load(folder / "job.yaml", {}, {})
        return
    assert problems(folder, text)[0][1].startswith(field)


def test_tracking_is_also_written_as_one_word(folder: Path) -> None:
    off = read(folder, "run: x\ntracking: false\n").job
    assert (off.tracking.record, written(off)["tracking"]) == (False, {"record": False})
    given = load(folder / "job.yaml", {}, {"tracking.experiment": "a", "tracking.record": "true"}).job
    assert (given.tracking.record, given.tracking.experiment) == (True, "a")


def test_a_file_that_is_not_there_says_how_a_command_is_given(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        load(tmp_path / "train.py", {}, {})
    assert "--" in raised.value.problems[0].hint


def test_a_program_in_place_of_a_job_file_says_where_it_goes(folder: Path) -> None:
    for text in ("import os\nprint(os.environ['X'])\n", "print(1)\n"):
        (folder / "train.py").write_text(text)
        with pytest.raises(InputError) as raised:
            load(folder / "train.py", {}, {})
        assert "--" in raised.value.problems[0].hint


def test_options_win_and_their_problems_name_them(folder: Path) -> None:
    job = read(
        folder, "run: x\ngpus: {count: 1, model: t4}\nenv: {A: 1}\n", **{"gpus.count": 4, "env.B": "2"}
    ).job
    assert (job.gpus.count, job.gpus.model, job.env) == (4, "t4", {"A": "1", "B": "2"})
    assert problems(folder, "run: x\ntime: 1h\n", time="soon") == [("--time", "time")]


@pytest.mark.parametrize("way", ["option", "set"])
def test_a_short_value_leaves_the_other_fields_of_its_part(folder: Path, way: str) -> None:
    """However it is given: ``--gpus 4`` or ``--set gpus=4``."""
    file = folder / "job.yaml"
    file.write_text(
        "run: x\ngpus: {count: 1, model: t4, memory: 10 GiB, class: old, interconnect: efa}\n"
        "code: {path: src, exclude: ['*.log']}\ntracking: {experiment: a}\n"
        "roles: {worker: {count: 1, cpus: 2, gpus: {count: 1, model: t4}}}\n"
    )
    given = {"gpus": 4, "code": "lib", "tracking": False, "roles.worker": 3, "roles.worker.gpus": 2}
    if way == "option":
        del given["roles.worker.gpus"]  # options have one dot at most
        job = load(file, given, {}).job
    else:
        job = load(file, {}, {name: str(value).lower() for name, value in given.items()}).job
    gpus = job.gpus
    assert (gpus.count, gpus.model, gpus.class_, gpus.interconnect) == (4, "t4", "old", "efa")
    assert gpus.memory == 10 << 30
    assert isinstance(job.code, Code)
    assert (job.code.path, job.code.exclude) == ("lib", ("*.log",))
    assert (job.tracking.record, job.tracking.experiment) == (False, "a")
    worker = job.roles["worker"]
    assert (worker.count, worker.cpus) == (3, 2)
    assert worker.gpus is not None
    assert (worker.gpus.count, worker.gpus.model) == (2 if way == "set" else 1, "t4")
    assert load(file, {}, {"code": "false"}).job.code is False
    assert load(file, {}, {"gpus": "{model: k80}"}).job.gpus == Gpus(model="k80")


def test_set_fills_the_command_and_quotes(folder: Path) -> None:
    file = folder / "job.yaml"
    file.write_text("run: python train.py --lr {lr} --tag {tag} ${HOME} {{x}}\n", encoding="utf-8")
    loaded = load(file, {}, {"lr": "1e-3", "tag": "a b; rm"})
    assert loaded.job.run == "python train.py --lr 1e-3 --tag 'a b; rm' ${HOME} {{x}}"
    assert loaded.parameters == {"lr": "1e-3", "tag": "a b; rm"}


def test_set_of_a_field_sets_it_and_the_command_comes_first(folder: Path) -> None:
    file = folder / "job.yaml"
    file.write_text(
        "run: train --time {time}\ngpus: 4\nroles: {worker: 2, ps: {count: 1}}\n", encoding="utf-8"
    )
    given = {"time": "9", "gpus.model": "v100", "roles.ps.count": "3", "roles.worker.memory": "8 GiB"}
    job = load(file, {}, given).job
    assert (job.run, job.time) == ("train --time 9", 86400)
    assert (job.gpus.count, job.gpus.model) == (4, "v100")
    assert (job.roles["worker"].count, job.roles["worker"].memory) == (2, 8 << 30)
    assert job.roles["ps"].count == 3


def test_set_of_a_field_that_is_wrong_names_the_option(folder: Path) -> None:
    with pytest.raises(InputError) as raised:
        load(None, {"run": "x"}, {"gpus.modell": "v100", "time": "soon", "env.A": "b: : c"}, folder=folder)
    found = {(each.where, each.field) for each in raised.value.problems}
    assert found == {("--set gpus.modell", "gpus.modell"), ("--set time", "time")}


def test_set_of_a_name_that_is_not_in_the_command_is_an_error(folder: Path) -> None:
    file = folder / "job.yaml"
    file.write_text("run: python train.py --lr {lr}\n", encoding="utf-8")
    with pytest.raises(InputError) as raised:
        load(file, {}, {"rl": "1"})
    assert raised.value.problems[0].field == "rl"


def test_each_run_has_a_seed_its_own_or_the_one_that_was_set(folder: Path) -> None:
    drawn = {seeded(load(None, {"run": "x"}, {}, folder=folder).job).seed for _ in range(3)}
    assert len(drawn) == 3
    job = load(None, {"run": "x"}, {"seed": "7"}, folder=folder).job
    assert seeded(job).seed == job.seed == 7
    assert load(None, {"run": "x {seed}"}, {"seed": "7"}, folder=folder).job.seed is None


def test_written_gives_back_the_same_job(folder: Path) -> None:
    import yaml

    text = (
        "run: x\ngpus: {count: 2, memory: 40 GiB}\ntime: 36h\n"
        "roles: {worker: 2, ps: {count: 1, gpus: {count: 0}}}\n"
    )
    job = read(folder, text).job
    again = read(folder, yaml.safe_dump(written(job))).job
    assert again == job


def test_a_problem_reads_as_one_line() -> None:
    assert (
        str(Problem("job.yaml:7", "gpus.model", "wrong", "right?")) == "job.yaml:7: gpus.model: wrong; right?"
    )
