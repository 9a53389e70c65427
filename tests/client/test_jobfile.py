"""Job files: fields, options over them, and everything that is wrong, at once and with its line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from causeway.errors import InputError
from causeway.job import Code, Gpus, Job, seeded, tasks_of, written
from causeway.jobfile import TEXT, LoadedJob, load
from causeway.reference import json_schema
from causeway.workers import variables, workers_of


def read(folder: Path, text: str, **options: object) -> LoadedJob:
    file = folder / "job.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, options, {})


def problems(folder: Path, text: str, **options: object) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as raised:
        read(folder, text, **options)
    return [(each.where.rpartition("/")[2], each.field) for each in raised.value.problems]


def test_a_command_is_all_that_a_job_needs(folder: Path) -> None:
    loaded = load(None, {"run": ["python", "train.py", "--name", "a b"]}, {}, folder=folder)
    assert loaded.job == Job(name="project", run="python train.py --name 'a b'")
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
        checkpoints:
          {keep: 3, metric: val_loss, goal: maximize, sharded: true, path: out, sync: 10m, volume: results}
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
    kept = job.checkpoints
    assert (kept.path, kept.sync, kept.volume) == ("out", 600, "results")
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
    ("text", "hint"), [("run: x\nnode: 2\n", "nodes"), ("run: x\ncheckpoints: {kep: 3}\n", "keep")]
)
def test_an_unknown_field_names_the_one_that_was_meant(folder: Path, text: str, hint: str) -> None:
    with pytest.raises(InputError) as raised:
        read(folder, text)
    (problem,) = raised.value.problems
    assert problem.hint.endswith(f" {hint}?")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("gpus: 1\n", "run"),
        ("run: x\ntime: 24\n", "time"),
        ("run: x\ncheckpoints: {path: ../out}\n", "checkpoints.path"),
        ("run: x\ncheckpoints: {path: .}\n", "checkpoints.path"),
        ("run: x\ncheckpoints: {path: /}\n", "checkpoints.path"),
        ("run: x\ncheckpoints: {path: /causeway/x}\n", "checkpoints.path"),
        ("run: x\ncheckpoints: {path: ~/out}\n", "checkpoints.path"),
        ("run: x\ncheckpoints: {sync: sometimes}\n", "checkpoints.sync"),
        ("run: x\ncheckpoints: {sync: true}\n", "checkpoints.sync"),
        ("run: x\ncheckpoints: {sync: 0s}\n", "checkpoints.sync"),
        ("run: x\nmounts: {data: false}\ncheckpoints: {volume: data}\n", "checkpoints.volume"),
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
        ("run: &a [*a]\n", "run.0"),
        ("run: x\nenv: &a {<<: *a}\n", "env"),
        ("run: x\nenv: &a {A: *a}\n", "env.A"),
        ("run: x\nenv: {<<: 1}\n", "env"),
        ("run: x\nenv: {[A]: 1}\n", "env"),
        ("run: x\nenv: {A: !!python/name:os.system ''}\n", "env.A"),
        ("run: " + "[" * 5000 + "]" * 5000 + "\n", ""),
        ("run:\n", "run"),
        ("run: x\nimage: [a]\n", "image"),
        ("run: x\nnodes: " + "9" * 5000 + "\n", "nodes"),
        ("run: x\ntime: 999999999999d\n", "time"),
        ("run: x\ntime: 366d\n", "time"),
        ("run: x\ntime: 0s\n", "time"),
        ("run: x\ntime: 12:00\n", "time"),
        ("run: x\nmemory: " + "9" * 400 + " GiB\n", "memory"),
        ("run: x\nmemory: 8 GiB\nshm: 9 GiB\nroles: {worker: {memory: 16 GiB}, ps: 1}\n", "shm"),
        ("run: x\narray: 1-16%4\n", "array"),
        ("run: x\narray: 16-1\n", "array"),
        ("run: x\narray: 1-\n", "array"),
        ("run: x\narray: 0-999999\n", "array"),
        ("run: x {lr}\narray: 1-2\nsweep: {parameters: {lr: [1, 2]}, metric: loss, trials: 2}\n", "array"),
    ],
)
def test_what_is_refused(folder: Path, text: str, field: str) -> None:
    assert problems(folder, text)[0][1].startswith(field)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("run: x\nnodes: 2\nroles: {worker: 2}\n", "roles"),
        ("run: x\nmemory: 8 GiB\nshm: 9 GiB\n", "shm"),
        ("run: x\n\ntime: 366d\n", "time"),
        ("env:\n  A: 1\nrun: python t.py {lr}\n", "run"),
    ],
)
def test_what_is_refused_has_its_line(folder: Path, text: str, field: str) -> None:
    assert problems(folder, text) == [("job.yaml:3", field)]


def test_a_file_that_is_not_utf_8_is_refused(folder: Path) -> None:
    (folder / "job.yaml").write_bytes(b"run: \xff\n")
    with pytest.raises(InputError):
        load(folder / "job.yaml", {}, {})


@pytest.mark.parametrize(
    ("array", "tasks"),
    [
        ("1-4", [1, 2, 3, 4]),
        ("0-30:10", [0, 10, 20, 30]),
        ("7,0,4-5,4", [7, 0, 4, 5]),
        ("010", [10]),
        ("3", [3]),
    ],
)
def test_tasks_of_an_array_are_those_of_sbatch(folder: Path, array: str, tasks: list[int]) -> None:
    assert tasks_of(read(folder, f"run: x\narray: {array}\n").job.array or "") == tasks


def test_a_field_that_is_set_twice_hides_nothing(folder: Path) -> None:
    text = "run: x\nrun: y\nenv: {A: 1, A: 2}\nnode: 2\ntime: soon\n"
    assert [*zip(*problems(folder, text), strict=True)][1] == ("run", "env.A", "node", "time")


def test_shared_memory_is_a_part_of_the_memory_of_each_role(folder: Path) -> None:
    text = "run: x\nmemory: 1 GiB\nshm: 9 GiB\nroles: {worker: {memory: 16 GiB}}\n"
    assert read(folder, text).job.shm == 9 << 30


WRITTEN = ["0123", "1_000", "0x1f", "1.50", "1e3", "on", "yes", "False", "null", "~", "2024-01-01", "12:00"]
"""What a YAML of one version or another makes something else of."""


@pytest.mark.parametrize("text", WRITTEN)
def test_text_is_what_is_written(folder: Path, text: str) -> None:
    job = read(folder, f"run: [echo, {text}]\nenv: {{A: {text}, B: '{text}'}}\n").job
    assert shlex.split(job.run) == ["echo", text]
    assert (job.env["A"], job.env["B"]) == (text, text)
    given = load(folder / "job.yaml", {}, {"run": f"[echo, {text}]", "env.A": text, "env.B": f"'{text}'"}).job
    assert (given.run, given.env) == (job.run, job.env)
    if text in ("null", "~"):
        assert read(folder, f"run: x\nimage: {text}\n").job.image is None
    else:
        assert read(folder, f"run: x\nimage: {text}\ncode: {text}\n").job.image == text
        assert load(folder / "job.yaml", {}, {"image": f"{text}"}).job.image == text
        assert load(folder / "job.yaml", {}, {"image": "null"}).job.image is None


def test_names_that_yaml_1_1_has_for_booleans_are_names(folder: Path) -> None:
    job = read(folder, "run: x\nname: on\ncode: 2024\nsecrets: {no: Y}\ngpus: {model: off}\n").job
    assert (job.name, job.secrets, job.gpus.model) == ("on", {"no": "Y"}, "off")
    assert isinstance(job.code, Code)
    assert job.code.path == "2024"
    assert load(folder / "job.yaml", {}, {"name": "yes", "code": "false"}).job.code is False


def test_set_of_a_text_is_that_text(folder: Path) -> None:
    job = load(None, {"run": "x"}, {"env.A": "a: b #c", "env.B": "", "image": "{x"}, folder=folder).job
    assert (job.env, job.image) == ({"A": "a: b #c", "B": ""}, "{x")
    with pytest.raises(InputError) as raised:
        load(None, {"run": "x"}, {"gpus": "&a {model: *a}"}, folder=folder)
    assert raised.value.problems[0].where == "--set gpus"


def test_every_field_of_text_is_known_as_one(folder: Path) -> None:
    """A new one would be read as a number where it looks like one."""
    schema = json_schema()

    def texts(entry: Any, dotted: str) -> Iterator[str]:
        if "$ref" in entry:
            yield from texts(schema["$defs"][entry["$ref"].rpartition("/")[2]], dotted)
        for each in entry.get("anyOf", []):
            yield from texts(each, dotted)
        for name, each in entry.get("properties", {}).items():
            yield from texts(each, f"{dotted}.{name}" if dotted else name)
        if isinstance(entry.get("items"), dict):
            yield from texts(entry["items"], f"{dotted}.0")
        if isinstance(entry.get("additionalProperties"), dict):
            yield from texts(entry["additionalProperties"], f"{dotted}.worker")
        if "string" in entry.get("type", ()) and not {"format", "enum", "const"} & {*entry}:
            yield dotted

    schema["properties"].pop("version")
    schema["properties"]["sweep"] = {"$ref": "#/$defs/Sweep"}
    schema["$defs"]["Sweep"]["properties"].pop("parameters")
    found = {*texts(schema, "")} - {"code"}
    assert {each for each in found if not TEXT.fullmatch(each)} == set()
    assert {"env.worker", "roles.worker.gpus.model", "run.0", "image"} <= found


@pytest.mark.parametrize(
    ("text", "seconds"), [("12:00:00", 43200), ("1-06:30:00", 109800), ("0:00:05", 5), ("90m", 5400)]
)
def test_a_time_is_also_written_as_sbatch_has_it(folder: Path, text: str, seconds: int) -> None:
    assert read(folder, f"run: x\ntime: {text}\n").job.time == seconds
    assert load(folder / "job.yaml", {}, {"time": text}).job.time == seconds
    assert load(folder / "job.yaml", {"time": text}, {}).job.time == seconds


@pytest.mark.parametrize("value", ["[a]", "{a: b}", "-1", "1.5", "true", "null", "soon", "[]"])
def test_what_is_wrong_is_said_in_our_words(folder: Path, value: str) -> None:
    """pydantic's begin with "Input should"."""
    messages: list[str] = []
    for field in Job.model_fields:
        (folder / "job.yaml").write_text(f"{field}: {value}\n" + "run: x\n" * (field != "run"))
        try:
            load(folder / "job.yaml", {}, {})
        except InputError as error:
            messages.append(str(error))
    assert messages
    assert not [message for message in messages if "Input" in message or "valid" in message]


@pytest.mark.parametrize(
    "command",
    [
        "train {lr}", "train --lr={lr} x", "a\ntrain \\\n  {lr}", "train '--lr={lr}'", 'train "{lr}"',
        "echo '# no' {lr}", "awk '{print}' x\ntrain {lr}",
    ],
)  # fmt: skip
def test_a_name_in_the_command_that_nothing_fills_is_refused(folder: Path, command: str) -> None:
    text = f"run: {json.dumps(command)}\n"
    assert problems(folder, text) == [("job.yaml:1", "run")]
    assert read(folder, f"{text}roles: {{worker: {{run: y}}}}\n", run="x").job.run == "x"
    assert "{lr}" in load(folder / "job.yaml", {}, {"lr": "{lr}"}).job.run


@pytest.mark.parametrize(
    "command",
    [
        "echo ${HOME} {{x}} \\{x} {a,b} {1..3} @{u} {}", "awk '{x}' y", "awk -F'|' '{x}' y | wc",
        "awk \\\n '{x}'", "python -c \"print(f'{x}')\"", "python - <<'EOF'\ns = {x}\nEOF\n",
        "curl -w '%{http_code}' y", "true # {x}",
    ],
)  # fmt: skip
def test_what_programs_have_in_braces_is_theirs(folder: Path, command: str) -> None:
    assert read(folder, f"run: {json.dumps(command)}\n").job.run == command


def test_one_run_of_a_search_needs_its_parameters(folder: Path) -> None:
    text = "run: t {lr} {--width}\nsweep: {parameters: {lr: [1, 2], width: [1, 2]}, metric: m, trials: 2}\n"
    (folder / "job.yaml").write_text(text)
    with pytest.raises(InputError) as raised:
        load(folder / "job.yaml", {}, {}, alone=True)
    assert raised.value.problems[0].field == "run"
    assert load(folder / "job.yaml", {}, {"lr": "3"}, alone=True).job.run == "t 3 "
    assert load(folder / "job.yaml", {}, {}).job.run == "t {lr} {--width}"


def test_tracking_is_also_written_as_one_word(folder: Path) -> None:
    off = read(folder, "run: x\ntracking: false\n").job
    assert (off.tracking.record, written(off)["tracking"]) == (False, {"record": False})
    given = load(folder / "job.yaml", {}, {"tracking.experiment": "a", "tracking.record": "true"}).job
    assert (given.tracking.record, given.tracking.experiment) == (True, "a")


@pytest.mark.parametrize("text", [None, "import os\nprint(os.environ['X'])\n", "print(1)\n"])
def test_a_program_in_place_of_a_job_file_says_where_it_goes(folder: Path, text: str | None) -> None:
    if text is not None:
        (folder / "train.py").write_text(text)
    with pytest.raises(InputError) as raised:
        load(folder / "train.py", {}, {})
    assert "--" in raised.value.problems[0].hint


def test_options_win_and_their_problems_name_them(folder: Path) -> None:
    text = "run: x\ngpus: {count: 1, model: t4}\nenv: {A: 1}\n"
    job = read(folder, text, **{"gpus.count": 4, "env.B": "2"}).job
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
    file.write_text("run: t --lr {lr} --tag {tag} ${HOME} {{x}}\n", encoding="utf-8")
    loaded = load(file, {}, {"lr": "1e-3", "tag": "a b; rm"})
    assert loaded.job.run == "t --lr 1e-3 --tag 'a b; rm' ${HOME} {{x}}"
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


@pytest.mark.parametrize(
    ("text", "machines"),
    [
        ("on: titan-01,ada@titan-02", ("titan-01", "ada@titan-02")),
        ("on: [titan-01, titan-02, titan-01]", ("titan-01", "titan-02")),
        ("on: [01, 02]", ("01", "02")),
        ("", ()),
    ],
)
def test_machines_are_a_list_or_separated_by_commas(
    folder: Path, text: str, machines: tuple[str, ...]
) -> None:
    assert read(folder, f"run: x\n{text}\n").job.on == machines


def test_options_win_over_the_machines_of_the_file(folder: Path) -> None:
    loaded = read(folder, "run: x\non: titan-01\n", on=["titan-02"])
    assert (loaded.job.on, loaded.places["on"]) == (("titan-02",), "--on")
    assert load(folder / "job.yaml", {}, {"on": "[]"}).job.on == ()
    assert load(folder / "job.yaml", {}, {"on": "titan-03,titan-04"}).job.on == ("titan-03", "titan-04")


def test_each_wrong_name_of_a_machine_has_its_line(folder: Path) -> None:
    text = "run: x\non:\n  - titan-01\n  - -oProxyCommand=x\n  - a b\n  - ''\n"
    assert problems(folder, text) == [(f"job.yaml:{line}", f"on.{line - 3}") for line in (4, 5, 6)]
    for wrong in ("on: titan-01,", "on: 'a b'", "on:", "on: {titan-01: 2}"):
        assert [where for where, _ in problems(folder, f"run: x\n{wrong}\n")] == ["job.yaml:2"]


def test_set_of_a_field_that_is_wrong_names_the_option(folder: Path) -> None:
    with pytest.raises(InputError) as raised:
        load(None, {"run": "x"}, {"gpus.modell": "v100", "time": "soon", "env.A": "b: : c"}, folder=folder)
    found = {(each.where, each.field) for each in raised.value.problems}
    assert found == {("--set gpus.modell", "gpus.modell"), ("--set time", "time")}


def test_set_of_a_name_that_is_not_in_the_command_is_an_error(folder: Path) -> None:
    with pytest.raises(InputError) as raised:
        load(None, {"run": "t {lr} {--momentum}"}, {"xyz": "1", "momentun": "0.9"}, folder=folder)
    found = {each.field: each.hint for each in raised.value.problems if each.where == "--set"}
    assert "{xyz}" in found["xyz"]
    assert "momentum" in found["momentun"]


def test_each_run_has_a_seed_its_own_or_the_one_that_was_set(folder: Path) -> None:
    drawn = {seeded(load(None, {"run": "x"}, {}, folder=folder).job).seed for _ in range(3)}
    assert len(drawn) == 3
    job = load(None, {"run": "x"}, {"seed": "7"}, folder=folder).job
    assert seeded(job).seed == job.seed == 7
    assert load(None, {"run": "x {seed}"}, {"seed": "7"}, folder=folder).job.seed is None


def test_written_gives_back_the_same_job(folder: Path) -> None:
    text = (
        "run: x\ngpus: {count: 2, memory: 40 GiB}\ntime: 36h\n"
        "roles: {worker: 2, ps: {count: 1, gpus: {count: 0}}}\n"
    )
    job = read(folder, text).job
    assert read(folder, yaml.safe_dump(written(job))).job == job


@pytest.mark.parametrize("array", ["7", "7-7", "07", "7-9:10"])
def test_a_task_is_a_number_however_it_is_written(folder: Path, array: str) -> None:
    job = read(folder, f"run: x\narray: {array}\n").job
    assert variables("x-1", job, workers_of(job)[0], {}, {})["CAUSEWAY_ARRAY_TASK"] == "7"
