"""Which launcher a command gets, and what becomes of the command."""

from __future__ import annotations

import pytest

from causeway.errors import InputError
from causeway.job import Job
from causeway.launch import choose, under_torchrun
from causeway.workers import ends_with, workers_of

ONE = "python -m torch.distributed.run --standalone --nproc_per_node=8 "


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("python train.py --lr 1e-3", ONE + "train.py --lr 1e-3"),
        ("python -m gpt.train --config a.yaml", ONE + "-m gpt.train --config a.yaml"),
        ("python -u train.py", ONE + "train.py"),
        ("python -W ignore train.py", ONE + "--no_python python -W ignore train.py"),
        ("OMP_NUM_THREADS=4 python train.py", "OMP_NUM_THREADS=4 " + ONE + "train.py"),
        ("exec python train.py", "exec " + ONE + "train.py"),
        ("pip install -e .\npython train.py\n", "pip install -e .\n" + ONE + "train.py"),
        ("python train.py \\\n  --lr 1", ONE + "train.py \\\n  --lr 1"),
        ("python train.py --name 'a; b | c'", ONE + "train.py --name 'a; b | c'"),
        ("python train.py 2>&1", ONE + "train.py 2>&1"),
        ("/opt/bin/python3.11 train.py", ONE.replace("python", "/opt/bin/python3.11", 1) + "train.py"),
        ("bash train.sh", None),
        ("python train.py | tee log", None),
        ("python train.py && python test.py", None),
        ("python train.py $(cat args)", None),
        ("python -c 'print(1)'", None),
        ("pythonic train.py", None),
    ],
)
def test_the_last_line_goes_under_torchrun(run: str, expected: str | None) -> None:
    assert under_torchrun(run, processes=8, nodes=1) == expected


def test_several_nodes_meet_at_the_first() -> None:
    script = under_torchrun("python train.py", processes=8, nodes=4)
    assert script == (
        "python -m torch.distributed.run --nnodes=4 --node_rank=$CAUSEWAY_RANK --master_addr=$MASTER_ADDR"
        " --master_port=$MASTER_PORT --nproc_per_node=8 train.py"
    )


@pytest.mark.parametrize(
    ("asked", "run", "gpus", "nodes", "image", "launcher"),
    [
        ("auto", "python t.py", 1, 1, "torchrun", "none"),
        ("auto", "python t.py", 0, 1, "torchrun", "none"),
        ("auto", "python t.py", 2, 1, "torchrun", "torchrun"),
        ("auto", "python t.py", 0, 2, "torchrun", "torchrun"),
        ("auto", "python t.py", 8, 1, "tensorflow", "tensorflow"),
        ("auto", "python t.py", 8, 1, "none", "none"),
        ("auto", "python t.py", 8, 1, None, "torchrun"),
        ("auto", "python t.py", 1, 2, None, "torchrun"),
        ("auto", "python t.py", 0, 2, None, "none"),
        ("auto", "bash t.sh", 8, 1, None, "none"),
        ("auto", "torchrun t.py", 8, 1, "torchrun", "none"),
        ("auto", "accelerate launch t.py", 8, 1, "torchrun", "none"),
        ("auto", "bash t.sh", 8, 1, "torchrun", "none"),
        ("none", "python t.py", 8, 4, "torchrun", "none"),
        ("tensorflow", "python t.py", 1, 1, "torchrun", "tensorflow"),
    ],
)
def test_the_choice(asked: str, run: str, gpus: int, nodes: int, image: str | None, launcher: str) -> None:
    assert choose(asked, run, gpus=gpus, nodes=nodes, image_launcher=image).launcher == launcher


def test_the_plan_says_which_launcher_and_why_where_there_is_a_choice() -> None:
    assert not choose("auto", "python t.py", gpus=1, nodes=1).why
    assert "8 processes" in choose("auto", "python t.py", gpus=8, nodes=2, image_launcher=None).why
    for asked, image in (("none", "torchrun"), ("auto", "none"), ("auto", "tensorflow"), ("torchrun", None)):
        assert choose(asked, "python t.py", gpus=8, nodes=1, image_launcher=image).why, (asked, image)


def test_a_command_that_runs_once_although_there_are_more_gpus_is_said() -> None:
    assert choose("auto", "bash t.sh", gpus=8, nodes=1).note


def test_torchrun_for_a_command_that_it_cannot_start_is_an_error() -> None:
    with pytest.raises(InputError):
        choose("torchrun", "bash t.sh", gpus=8, nodes=1)


def test_roles_are_for_tensorflow_and_end_with_the_chief() -> None:
    roles = {"ps": 2, "worker": {"count": 4, "run": "python w.py"}, "chief": 1}
    workers = workers_of(Job.model_validate({"name": "x", "run": "python t.py", "roles": roles}))
    assert [(each.role, each.count, each.launch.script) for each in workers] == [
        ("ps", 2, "python t.py"),
        ("worker", 4, "python w.py"),
        ("chief", 1, "python t.py"),
    ]
    assert {each.launch.launcher for each in workers} == {"tensorflow"}
    assert ends_with(workers) == "chief"
    assert ends_with(workers[:2]) == "worker"
    with pytest.raises(InputError):
        workers_of(Job.model_validate({"name": "x", "run": "y", "roles": roles, "launcher": "torchrun"}))
