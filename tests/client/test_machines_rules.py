"""What is decided about runs on machines, and what is sent there."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import pytest
from client.process import SYSTEM_PYTHON, Causeway
from golden_folders import assert_text

import causeway
from causeway.errors import CausewayError, InputError
from causeway.job import Job
from causeway.machines import host, kit
from causeway.machines.gang import Follower, Leader
from causeway.machines.leases import Gpu, fits
from causeway.machines.placement import emptied, place, room
from causeway.machines.ssh import Host, hosts_named
from causeway.machines.state import Run, run_of
from causeway.places import Place
from causeway.workers import policy_of, workers_of

MESSAGES = Path(__file__).parents[1] / "messages/machines.txt"


def checked(*free: int, taken: str = "") -> dict[str, dict[str, Any]]:
    """Machines with so many free GPUs, and one that is taken."""
    return {
        f"titan-{at}": {
            "gpus": [{"uuid": f"{at}-{number}", "name": "V100", "fits": [True, True], "taken": ""}
                     for number in range(count)]
            + ([{"uuid": f"{at}-x", "name": "V100", "fits": [True, True], "taken": taken}] if taken else [])
        }
        for at, count in enumerate(free)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "free", "hosts"),
    [
        ({"nodes": 2}, (4, 4), [0, 1]),  # one each, though both have room for two
        ({"nodes": 3}, (4, 4), [0, 1, 0]),
        ({"nodes": 2, "gpus": 4}, (2, 4, 4), [1, 2]),
        ({"gpus": 2}, (1, 4), [1]),
        ({"gpus": 0, "nodes": 3}, (0, 0), [0, 1, 0]),
        ({"nodes": 3}, (1, 2), [0, 1, 1]),
    ],
)
def test_workers_go_where_their_gpus_are_free(fields: Any, free: tuple[int, ...], hosts: list[int]) -> None:
    job = Job(name="x", run="python x.py", **fields)
    placed = place(workers_of(job), checked(*free))
    assert placed == {f"worker-{rank}": f"titan-{host}" for rank, host in enumerate(hosts)}


def test_the_chief_goes_first() -> None:
    roles = {"ps": {"count": 1, "gpus": 0}, "chief": 1}
    job = Job.model_validate({"name": "x", "run": "python x.py", "roles": roles})
    assert [*place(workers_of(job), checked(1, 1))] == ["chief-0", "ps-0"]


def test_how_many_trials_have_room() -> None:
    two = workers_of(Job.model_validate({"name": "x", "run": "x", "gpus": 2}))
    assert [room(two, checked(5, 3), most) for most in (0, 1, 2, 9)] == [0, 1, 2, 3]
    taken = checked(1, taken="GPU 7: ada")
    assert (room(two, taken, 9), room(two, emptied(taken), 9)) == (0, 1)


@pytest.mark.parametrize(
    ("wanted", "yes"),
    [
        ({}, True),
        ({"model": "v100"}, True),
        ({"model": "tesla-v100-sxm2"}, True),
        ({"model": "titan-v"}, False),
        ({"memory": 16 << 30}, True),
        ({"memory": 32 << 30}, False),
    ],
)
def test_which_gpus_fit(wanted: Mapping[str, Any], yes: bool) -> None:
    assert fits(Gpu(0, "GPU-1", "Tesla V100-SXM2-16GB", 16160), wanted) is yes


def known(**workers: Any) -> dict[str, Any]:
    return {"workers": workers, "outcome": {}, "kept": True, "stopped": {}, "booted": 0.0}


def run(answers: Mapping[str, Any], faults: Mapping[str, str] | None = None) -> Run:
    record = {
        "workers": {"worker-0": {"host": "one"}, "worker-1": {"host": "two"}},
        "first": "worker-0", "started": 5.0,
    }  # fmt: skip
    return run_of("x-on-1", record, answers, faults or {})


def phase(name: str, **more: Any) -> dict[str, Any]:
    return {"phase": name, "at": 9.0, "gpus": [0], **more}


def test_states_of_runs() -> None:
    running = {"one": known(**{"worker-0": phase("running")}), "two": known(**{"worker-1": phase("leased")})}
    assert run(running).state == "running"
    assert run({"one": known(), "two": known()}).state == "starting"
    # The first one's machine says how it ended; the lost one's own machine says more.
    outcome = {"state": "failed", "reason": "", "at": 7.0,
               "first": {"role": "worker", "rank": 1, "lost": True, "reason": "away"}}  # fmt: skip
    over = known(**{"worker-0": phase("over", exit=75)}) | {"outcome": outcome}
    away = run({"one": over}, {"two": "two: broke"})
    assert (away.state, away.reason) == ("failed", "worker-1: away")
    back = run({"one": over, "two": known(**{"worker-1": phase("lost", why="rebooted")})})
    assert "rebooted" in back.reason
    # Without the first one nobody knows.
    lost = run({"two": known(**{"worker-1": phase("running")})}, {"one": "one: broke"})
    assert (lost.state, lost.reason) == ("unknown", "one: broke")
    memory = run({"one": known(**{"worker-0": phase("lost", why="oom-kill")}), "two": known()})
    assert (memory.state, memory.since) == ("failed", 9.0)
    # A trial goes on by itself where its machine is to blame.
    assert [each.interrupted for each in (away, back, lost, memory)] == [True, True, False, False]


WAITING: list[dict[str, Any]] = [
    {},
    {"ready": True, "place": 1},
    {"place": 2, "behind": "ada (x, since 14:05)"},
    {"place": 1, "why": "GPU 0 is leased by ada"},
    *({"place": place, "behind": "bob"} for place in (3, 12, 23)),
]


def test_what_is_said_of_runs_and_of_machines_without_room(request: pytest.FixtureRequest) -> None:
    """In ``tests/messages/machines.txt``."""
    answers = [phase("waiting", **{"ready": False, "behind": "", "why": "", **said}) for said in WAITING]
    answers += [phase("lost", why=why) for why in ("disk-full", "oom-kill", "timeout", "signal", "none")]
    answers += [phase("over", exit=1, problem="no code")]
    runs = [run({"one": known(**{"worker-0": answer}), "two": known()}) for answer in answers]
    assert [each.state for each in runs] == ["waiting"] * len(WAITING) + ["failed"] * 6
    refused = []
    for fields, free in (
        ({"gpus": 2}, checked(1, taken="GPU 7 is leased by ada")),
        ({"gpus": {"count": 1, "model": "a100", "memory": "40 GiB"}, "nodes": 2}, checked(0)),
    ):
        with pytest.raises(CausewayError) as raised:
            place(workers_of(Job.model_validate({"name": "x", "run": "x", **fields})), free)
        refused.append(str(raised.value))
    text = "\n".join([*(each.reason for each in runs), *refused]) + "\n"
    assert_text(MESSAGES, text, rewrite=request.config.getoption("--update-golden"))


@pytest.mark.parametrize(
    ("ended", "state", "first"),
    [
        ({"a-0": {"exit": 0}, "b-0": {"exit": 0}}, "done", None),
        ({"a-0": {"exit": 0}}, "done", None),
        ({"b-0": {"exit": 0}}, "", None),
        ({"b-0": {"exit": 1, "at": 5}, "a-0": {"exit": 1, "at": 4}}, "failed", "a-0"),
        ({"b-0": {"exit": 1, "at": 5}, "a-0": {"exit": 75, "at": 4}}, "failed", "b-0"),
        ({"b-0": {"exit": 75, "asked": "person"}}, "stopped", None),
        ({"b-0": {"exit": 75, "asked": "system", "why": "shut down"}}, "failed", None),
    ],
)
def test_how_a_run_ends(ended: Mapping[str, Any], state: str, first: str | None) -> None:
    leader = Leader({"a-0": "one", "b-0": "two"}, ["a-0"], "token", 0, 60)
    try:
        for worker, status in ended.items():
            leader.note(worker, {"role": worker[0], "rank": 0, **status})
        leader.look("a-0")
        outcome = leader.outcome()
    finally:
        leader.close()
    assert outcome["state"] == state
    assert (outcome["first"] and f"{outcome['first']['role']}-0") == first


def test_when_another_worker_failed_does_not_depend_on_when_it_was_heard() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    leader = Leader({"a-0": "one", "b-0": "two"}, ["a-0"], "token", port, 60)
    try:
        follower = Follower("b-0", "token", f"127.0.0.1:{port}")
        failed = time.time()
        telling = Thread(target=follower.ended, args=({"exit": 1, "at": failed},))
        telling.start()
        while "b-0" not in leader.ended:
            time.sleep(0.5)
            leader.look("a-0")
        telling.join()
        assert abs(leader.ended["b-0"]["at"] - failed) < 0.25
    finally:
        leader.close()


def test_the_kit_runs_on_a_machine_that_has_python_alone(tmp_path: Path) -> None:
    """``-I -S``: without site packages. Older grammars than those here can only be read."""
    folder = Path(causeway.__file__).parent
    for name in kit.MODULES:
        ast.parse((folder / name).read_text(), name, feature_version=(3, 9))
    done = subprocess.run(
        [SYSTEM_PYTHON, "-I", "-S", *kit.command("claim")[1:]],
        input=kit.stdin_of(b'{"run": "x-on-1"}\n'), capture_output=True, env={"HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == kit.MARK + b'{"claimed": true}\n', done.stderr
    (sent,) = (tmp_path / ".local/share/causeway/machines/kits").iterdir()
    for name in ("worker", "host"):
        script = f"import sys; sys.path.insert(0, {str(sent)!r}); import causeway.machines.{name}"
        subprocess.run([SYSTEM_PYTHON, "-I", "-S", "-c", script], check=True)


def test_what_a_machine_with_the_same_home_unpacks_is_not_in_the_way(tmp_path: Path) -> None:
    """Processes of two machines may have one id, and what was killed while it unpacked leaves its folder."""
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this kernel lets us make no namespaces")
    (tmp_path / f".local/share/causeway/machines/kits/{kit.kit()[0]}.1").mkdir(parents=True)
    done = subprocess.run(
        [*alone, SYSTEM_PYTHON, "-I", "-S", *kit.command("claim")[1:]],
        input=kit.stdin_of(b'{"run": "x-on-1"}\n'), capture_output=True, env={"HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == kit.MARK + b'{"claimed": true}\n', done.stdout + done.stderr


def test_ports_that_were_tried_are_free_when_the_machine_says_so(tmp_path: Path) -> None:
    with subprocess.Popen(
        [SYSTEM_PYTHON, *kit.command("listen")[1:]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(kit.stdin_of(b'{"ports": 2}\n'))
        process.stdin.flush()
        assert process.stdout.readline() == kit.MARK
        offered = json.loads(process.stdout.readline())
        assert len(offered["ports"]) == 3
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", offered["ports"][-1]), 30) as connection:
                assert connection.recv(64).decode() == offered["word"]
        process.stdin.close()
        assert json.loads(process.stdout.readline()) == {"closed": True}
        for port in offered["ports"]:
            socket.create_server(("", port)).close()
    assert process.returncode == 0


def test_the_first_worker_waits_for_its_port() -> None:
    with socket.create_server(("", 0)) as held:
        port = held.getsockname()[1]
        timer = Timer(1, held.close)
        timer.start()
        leader = Leader({"a-0": "one", "b-0": "two"}, ["a-0"], "token", port, 60)
        leader.close()
        timer.join()


def test_a_checkpoint_that_was_left_and_not_copied_yet_counts(tmp_path: Path) -> None:
    job = Job(name="x", run="python x.py")
    workers = {"worker-0": {"role": "worker", "rank": 0}}
    record = {"workers": workers, "policy": policy_of(job, workers_of(job)).text()}
    folder = Place(tmp_path, "worker", 0).checkpoints
    assert not host._left_whole(tmp_path, record)
    (folder / "step-1.tmp").mkdir(parents=True)
    (folder / "step-1.tmp/state").write_text("1")
    assert not host._left_whole(tmp_path, record), "half of it"
    time.sleep(0.01)
    (folder / "step-1.tmp").rename(folder / "step-1")
    assert host._left_whole(tmp_path, record)


def test_wrong_names_of_machines_are_reported_at_once() -> None:
    wrong = ["", "-oProxyCommand=x", "a b"]
    for name in wrong:
        with pytest.raises(InputError):
            Host(name)
    with pytest.raises(InputError) as raised:
        hosts_named(["titan-01", *wrong])
    assert [each.field for each in raised.value.problems] == [repr(name) for name in wrong]


def test_the_command_line_reports_all_wrong_names_of_machines(causeway: Causeway) -> None:
    for verb in (("run", "--", "true"), ("ps",), ("why", "x-on-1")):
        done = causeway(verb[0], "--on", "-oProxyCommand=x,titan-01,a b", *verb[1:])
        assert done.code == 2, done.err
        assert [name in done.err for name in ("'-oProxyCommand=x'", "'a b'")] == [True, True]


def test_the_job_file_names_machines_unless_an_option_does(causeway: Causeway, folder: Path) -> None:
    (folder / "job.yaml").write_text("run: echo here\non: one.invalid\ncode: false\n")
    for words, named in (((), "one.invalid"), (("--on", "two.invalid"), "two.invalid")):
        done = causeway("run", "job.yaml", "--no-wait", *words)
        assert (done.code, done.err.startswith(f"error: {named}: ")) == (3, True), done.err
    done = causeway("run", "job.yaml", "--local")
    assert (done.code, "here" in done.out.splitlines()) == (0, True), done.err
    # In a cluster, which is not there.
    assert "kubeconfig" in causeway("run", "job.yaml", "--set", "on=[]").err
    done = causeway("run", "job.yaml", "--each", "seed=1,2")
    assert (done.code, done.err.startswith("error: job.yaml:2: on: ")) == (2, True), done.err
    (folder / "search.yaml").write_text(
        "run: echo {lr}\ncode: false\non: one.invalid\n"
        "sweep: {parameters: {lr: {log: [1e-4, 1]}}, metric: loss, trials: 2}\n"
    )
    for words, named in (((), "one.invalid"), (("--on", "two.invalid"), "two.invalid")):
        done = causeway("sweep", "search.yaml", *words)
        assert (done.code, done.err.startswith(f"error: {named}: ")) == (3, True), done.err


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--no-wait", "--", "true"),
        ("reserve", "titan-01"),
        ("reserve", "titan-01", "--for", "soon"),
        ("reserve", "titan-01", "--end", "--for", "8h"),
        ("reserve", "-oProxyCommand=x", "--for", "8h"),
        ("gpus", "--on", "-oProxyCommand=x"),
    ],
)
def test_what_is_refused_before_a_machine_is_asked(causeway: Causeway, words: tuple[str, ...]) -> None:
    assert causeway(*words).code == 2
