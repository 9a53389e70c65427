"""``causeway run`` in a cluster, end to end: from a folder to pods, and back with what became of it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from client.jobset_world import World, person
from client.pods import can_run, wait
from client.process import Causeway, program

pytestmark = pytest.mark.skipif(bool(can_run()), reason=can_run())


def test_the_shell_and_the_program_are_given_what_the_job_says(ada: Causeway, folder: Path) -> None:
    """Kubernetes has a meaning of its own for ``$$`` and ``$(NAME)`` in commands and variables."""
    program(folder, "import os; print(os.environ['RAW'])")
    made = {
        "name": "literal",
        "run": 'test "$$" -gt 0 && echo "in $(basename $PWD)"\npython3 train.py',
        "env": {"RAW": "a$$b$(HOME)"},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(made))
    done = ada("run", "job.yaml")
    assert done.code == 0, done.err
    assert {"in code", "a$$b$(HOME)"} <= {*done.err.splitlines()}
    (row,) = [run for run in json.loads(ada("ps", "--json").out) if run["name"] == "literal-1"]
    assert (row["state"], row["person"], row["workers"][0]["state"]) == ("done", "ada", "done")


_DDP = """
    import os, sys, torch, torch.distributed as dist
    from model.layer_999 import SIZE
    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    print(f"{dist.get_rank()} of {dist.get_world_size()}: {total.item()}")
    if FAIL and os.environ["CAUSEWAY_RANK"] == "1":
        raise ValueError("diverged")
"""


def test_two_workers_train_and_the_one_that_fails_is_named_and_what_was_submitted_stays(
    ada: Causeway, folder: Path, tmp_path: Path
) -> None:
    """With a thousand files, and torchrun. On a real kubelet: ``test_kubelets.py``."""
    (folder / "model").mkdir()
    for number in range(1000):
        (folder / f"model/layer_{number}.py").write_text(f"SIZE = {number}\n")
    program(folder, _DDP.replace("FAIL", "True"))
    (folder / "job.yaml").write_text("name: ddp\nrun: python3 train.py\nnodes: 2\ngpus: 1\nrestarts: 0\n")
    done = ada("run", "job.yaml", "--json")
    assert done.code == 1, done.err
    assert "0 of 2: 1.0" in done.err
    first = done.json["first_failure"]
    assert (first["role"], first["rank"], first["lines"][-1]) == ("worker", 1, "ValueError: diverged")
    assert done.json["code"]
    output = ada("why", done.json["name"]).out
    assert ("worker-1" in output, "ValueError: diverged" in output) == (True, True)
    # The folder changes; what was submitted does not.
    program(folder, _DDP.replace("FAIL", "False"))
    assert ada("code", done.json["name"], str(tmp_path / "back")).code == 0
    assert "if True" in (tmp_path / "back/train.py").read_text()
    again = ada("rerun", done.json["name"], "--json")
    assert (again.code, again.json["code"]) == (1, done.json["code"])
    assert again.json["first_failure"]["lines"][-1] == "ValueError: diverged"
    assert ada("run", "job.yaml").code == 0


def test_what_a_run_wrote_outlives_its_pods_and_comes_back(
    ada: Causeway, world: World, folder: Path, tmp_path: Path
) -> None:
    program(
        folder,
        """
        import os, pathlib, sys
        results, rank = pathlib.Path(os.environ["CAUSEWAY_RESULTS"]), os.environ["CAUSEWAY_RANK"]
        seen = sorted(path.name for path in results.rglob("*") if path.is_file())
        print("attempt", os.environ["CAUSEWAY_ATTEMPT"], "sees", *seen)
        (results / "plots").mkdir(exist_ok=True)
        (results / "plots/loss.txt").write_text("loss-" + rank)
        (results / ("model-" + os.environ["CAUSEWAY_ATTEMPT"])).write_text("m" * 100)
        sys.exit(5 if os.environ["CAUSEWAY_ATTEMPT"] == "0" else 0)
        """,
    )
    (folder / "job.yaml").write_text(
        "name: keeps\nrun: python3 train.py\nnodes: 2\ngpus: 0\nrestarts: 1\nlauncher: none\n"
    )
    done = ada("run", "job.yaml", "--json")
    assert (done.code, done.json["restarts"]) == (0, 1), done.err
    name = done.json["name"]
    path = f"/api/v1/namespaces/user-ada/pods?labelSelector=causeway.dev/run={name}"
    for pod in world.admin.call("GET", path)["items"]:
        url = f"/api/v1/namespaces/user-ada/pods/{pod['metadata']['name']}"
        world.admin.call("DELETE", url, {"gracePeriodSeconds": 0})
    wait(lambda: not world.admin.call("GET", path)["items"])
    lines = [json.loads(line) for line in ada("logs", name, "--json").out.splitlines()]
    assert sorted((line["worker"], line["line"]) for line in lines) == [
        (f"worker-{rank}", "attempt 1 sees loss.txt model-0") for rank in (0, 1)
    ]
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    first = ada("logs", name, "--attempt", "0", "--worker", "worker-1").out.splitlines()
    assert first == ["attempt 0 sees"]
    assert ada("logs", name, "--attempt", "7").code == 1
    assert json.loads(ada("why", name, "--json").out)["first_failure"]["exit"] == 5

    there = tmp_path / "there"
    got = ada("get", name, "--to", str(there), "--json")
    assert (got.json["files"], got.json["fetched"]) == (6, 6)
    assert (there / "plots/loss.txt").read_text() == "loss-0"
    assert (there / "worker-1/plots/loss.txt").read_text() == "loss-1"
    assert ada("get", name, "--to", str(there), "--json").json["fetched"] == 0
    (folder / "extra").mkdir()
    (folder / "extra/best.pt").write_text("best")
    assert ada("put", name, "extra", "--json").json["files"] == 1
    assert ada("get", name, "extra", "--to", str(there), "--json").json["fetched"] == 1
    assert (there / "extra/best.pt").read_text() == "best"
    assert ada("get", name, "nothing").code == 1
    assert ada("put", name, "not-there").code == 2


def test_checkpoints_on_a_volume_come_back_to_the_folder_that_the_program_knows(
    ada: Causeway, world: World, folder: Path, tmp_path: Path
) -> None:
    """The files are on the volume, and what they are is in the bucket."""
    program(
        folder,
        """
        import os, pathlib, sys, time
        folder = pathlib.Path("/ckpt")
        assert os.environ["CAUSEWAY_CHECKPOINTS"] == str(folder)
        print("finds", *sorted(path.name for path in folder.iterdir() if path.name[0] != "."))
        if os.environ.get("CAUSEWAY_RESUME") == "/ckpt/step-7":
            sys.exit()
        (folder / "step-7.tmp").write_text("seven")
        time.sleep(0.02)
        os.replace(folder / "step-7.tmp", folder / "step-7")
        sys.exit(5)
        """,
    )
    (folder / "job.yaml").write_text(
        "name: volume\nrun: python3 train.py\ngpus: 0\nrestarts: 1\n"
        "checkpoints: {path: /ckpt, volume: results}\n"
    )
    volume = tmp_path / "results"
    volume.mkdir()
    for each in (*reversed(tmp_path.parents[:2]), tmp_path):
        each.chmod(0o755)
    volume.chmod(0o1777)
    world.pods.claims["results"] = volume
    try:
        done = ada("run", "job.yaml", "--json")
    finally:
        del world.pods.claims["results"]
    assert (done.code, done.json["restarts"]) == (0, 1), done.err
    name = done.json["name"]
    assert "finds step-7" in ada("logs", name).out.splitlines()
    (kept,) = (volume / f"causeway-user-ada/{name}/files").rglob("step-7")
    assert kept.read_text() == "seven"
    keys = world.s3().list_objects_v2(Bucket=world.bucket, Prefix=f"runs/user-ada/{name}/checkpoints/")
    assert {"/manifests/" in each["Key"] for each in keys["Contents"]} == {True}
    assert [each["name"] for each in json.loads(ada("checkpoints", name, "--json").out)] == ["step-7"]
    refused = ada("get", name, "--checkpoint", "step-7")
    assert (refused.code, f"/results/causeway-user-ada/{name}/files/" in refused.err) == (1, True)


def test_all_output_of_starts_that_follow_one_another_at_once_is_followed(
    ada: Causeway, folder: Path
) -> None:
    program(
        folder,
        """
        import os, sys
        print("attempt", os.environ["CAUSEWAY_ATTEMPT"], "of", os.environ["CAUSEWAY_RANK"])
        sys.exit(3 if os.environ["CAUSEWAY_ATTEMPT"] < "2" else 0)
        """,
    )
    (folder / "job.yaml").write_text(
        "name: quick\nrun: python3 train.py\ngpus: 0\nnodes: 2\nlauncher: none\nrestarts: 2\n"
    )
    done = ada("run", "job.yaml", "--json")
    assert done.code == 0, done.err
    output = sorted(line.rpartition(" │ ")[2] for line in done.err.splitlines() if "│ attempt" in line)
    assert output == [f"attempt {number} of {rank}" for number in range(3) for rank in range(2)]
    name = done.json["name"]
    words = {"_CAUSEWAY_COMPLETE": "bash_complete", "COMP_WORDS": "causeway why qui", "COMP_CWORD": "2"}
    # It waits for the cluster for two seconds at most.
    wait(lambda: f"plain,{name}" in ada(**words).out.splitlines())
    refused = ada("logs", "-f", name, "--worker", "worker-9")
    assert (refused.code, "worker-0, worker-1" in refused.err) == (2, True), refused.err
    assert ada("logs", name, "--worker", "worker-9").code == 2
    assert ada("shell", name, "--worker", "worker-9", "--", "true").code == 2
    # It has ended: what there is of its last start, and of the one that is asked for.
    last = ada("logs", "-f", name, "--worker", "worker-1")
    assert (last.code, last.out.splitlines()[0]) == (0, "attempt 2 of 1")
    first = ada("logs", "-f", name, "--attempt", "0", "--json").out.splitlines()
    assert {yaml.safe_load(line)["line"] for line in first} == {"attempt 0 of 0", "attempt 0 of 1"}


def test_unchanged_code_is_not_sent_again(ada: Causeway, world: World, folder: Path) -> None:
    program(folder, "print('x' * 10)")
    first = ada("run", "--name", "same", "--json", "--", "python3", "train.py")
    again = ada("run", "--name", "same", "--json", "--", "python3", "train.py")
    assert (first.json["name"], again.json["name"]) == ("same-1", "same-2")
    assert first.json["code"] == again.json["code"]
    versions = world.s3().list_object_versions(
        Bucket=world.bucket, Prefix=f"code/user-ada/{first.json['code']}.tar.gz"
    )
    assert len(versions["Versions"]) == 1


def test_a_failure_is_restarted_and_an_import_that_fails_is_not(ada: Causeway, folder: Path) -> None:
    (folder / "job.yaml").write_text("name: again\nrun: python3 train.py\nrestarts: 1\n")
    for ends in ("sys.exit(3)", "os.kill(os.getpid(), 9)"):
        program(folder, f"import os, sys\nif os.environ['CAUSEWAY_ATTEMPT'] == '0':\n    {ends}")
        done = ada("run", "job.yaml", "--json")
        assert (done.code, done.json["restarts"]) == (0, 1), done.err
    program(folder, "import nothing_of_the_sort")
    done = ada("run", "job.yaml", "--json")
    assert (done.code, done.json["restarts"]) == (1, 0), done.err
    assert "nothing_of_the_sort" in done.json["first_failure"]["reason"]
    name = done.json["name"]
    [row] = (each for each in json.loads(ada("ps", "--json").out) if each["name"] == name)
    for refused in (ada("shell", name, "--", "true"), ada("notebook", name, "--no-browser")):
        assert refused.code == 1
        assert row["reason"]
        assert row["reason"] in refused.err


def test_code_that_is_not_what_was_submitted_does_not_run(ada: Causeway, world: World, folder: Path) -> None:
    program(folder, "print('this must not run')")
    first = ada("run", "--name", "forged", "--json", "--", "python3", "train.py")
    key = f"code/user-ada/{first.json['code']}.tar.gz"
    data = bytearray(world.s3().get_object(Bucket=world.bucket, Key=key)["Body"].read())
    data[len(data) // 2] ^= 1
    world.s3().put_object(Bucket=world.bucket, Key=key, Body=bytes(data))
    done = ada("run", "--name", "forged", "--json", "--", "python3", "train.py")
    assert done.code == 1
    assert (done.json["restarts"], done.json["first_failure"]["exit"]) == (0, 78)
    assert "code" in done.json["first_failure"]["reason"]


def test_a_dry_run_prints_the_object_and_sends_nothing(ada: Causeway, world: World, folder: Path) -> None:
    program(folder, "print('never sent')")
    done = ada("run", "--dry-run", "--gpus", "4", "--name", "dry", "--", "python3", "train.py")
    assert done.code == 0, done.err
    jobset = yaml.safe_load(done.out)
    container = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    assert "--nproc_per_node=4" in container["command"][-1]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    mounts = {mount["mountPath"]: mount.get("readOnly") for mount in container["volumeMounts"]}
    assert (mounts["/home/ada"], mounts["/data"], mounts["/results"]) == (False, True, False)
    assert not any(run["name"].startswith("dry") for run in json.loads(ada("ps", "--json").out))


def test_what_no_machine_can_run_names_the_field(ada: Causeway, folder: Path) -> None:
    program(folder, "")
    for text, field in (
        ("python: requirements.txt\n", "python"),
        ("gpus: 9\n", "gpus.count"),
        ("gpus: {model: titan-x-pascall}\n", "gpus.model"),
        ("gpus: {count: 1, memory: 900 GiB}\n", "gpus.memory"),
        ("memory: 100 TiB\n", "memory"),
        ("where: {sites: [moon]}\n", "where.sites"),
        ("mounts: {attic: true}\n", "mounts.attic"),
        ("group: nobody\n", "group"),
    ):
        (folder / "job.yaml").write_text(f"run: python3 train.py\n{text}")
        done = ada("run", "job.yaml")
        line = 3 if text.count("\n") > 1 else 2
        assert (done.code, f"job.yaml:{line}: {field}:" in done.err) == (2, True), done.err


def test_a_run_in_a_groups_namespace_and_nobody_elses(
    ada: Causeway, world: World, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    program(folder, "print('ours')")
    done = ada("run", "--group", "engineers", "--json", "--name", "ours", "--", "python3", "train.py")
    assert (done.code, done.json["namespace"]) == (0, "team-engineers"), done.err
    alan = person(world, "alan", folder, environment, command)
    refused = alan("run", "--group", "engineers", "--name", "theirs", "--", "python3", "train.py")
    assert refused.code == 1
    assert "Traceback" not in refused.err
    assert alan("ps", "--group", "engineers").code == 1


def test_ctrl_c_lets_go_and_the_run_goes_on(
    ada: Causeway, world: World, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    program(folder, "import time; print('begun', flush=True); time.sleep(4); print('ended')")
    process = subprocess.Popen(
        [*command, "run", "--name", "left", "--", "python3", "train.py"],
        cwd=folder, env={**environment, **world.environment("ada")}, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line == "begun\n":
            break
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert (process.returncode, "causeway logs -f left-1" in output) == (130, True), output
    wait(lambda: ada("why", "left-1", "--json").json["state"] == "done")
    assert ada("logs", "left-1").out.splitlines() == ["begun", "ended"]


def test_a_run_for_each_combination_is_submitted_by_one_command(ada: Causeway, folder: Path) -> None:
    program(folder, "import os, sys; print(os.environ['CAUSEWAY_RUN'], *sys.argv[1:])")
    each = ("--name", "grid", "--each", "lr=0.1,0.01", "--each", "seed=1..2")
    command = ("--", "python3", "train.py", "{lr}", "{seed}")
    done = ada("run", *each, "--json", *command)
    assert done.code == 0, done.err
    submitted = {row["run"]: (row["set"]["lr"], row["set"]["seed"]) for row in json.loads(done.out)}
    combinations = [("0.1", "1"), ("0.1", "2"), ("0.01", "1"), ("0.01", "2")]
    assert submitted == {f"grid-{number}": chosen for number, chosen in enumerate(combinations, 1)}
    assert ada("wait", *submitted).code == 0
    for name, (lr, seed) in submitted.items():
        assert ada("logs", name).out == f"{name} {lr} {seed}\n"
    assert len([*yaml.safe_load_all(ada("run", *each, "--dry-run", *command).out)]) == 4


def test_an_array_is_a_run_for_each_task_and_wait_is_until_all_have_ended(
    ada: Causeway, folder: Path
) -> None:
    (folder / "job.yaml").write_text(
        "name: parts\nrun: test $CAUSEWAY_ARRAY_TASK != 4 && echo part $CAUSEWAY_ARRAY_TASK\n"
        "array: 2-4:2\ncode: false\nrestarts: 0\n"
    )
    done = ada("run", "job.yaml", "--wait", "--json")
    states = [(row["name"], row["state"]) for row in json.loads(done.out)]
    assert states == [("parts-1", "done"), ("parts-2", "failed")], done.err
    assert done.code == 1
    assert "part 2" in ada("logs", "parts-1").out
    one = ada("run", "job.yaml", "--array", "7", "--json")
    assert (one.code, one.json["name"], ada("logs", "parts-3").out) == (0, "parts-3", "part 7\n")
    assert ada("wait", "parts-1", "parts-2").code == 1
    assert ada("wait", "parts-9").code == 1
    here = ada("run", "--local", "job.yaml")
    assert (here.code, "job.yaml:3" in here.err) == (2, True), here.err


def test_what_is_wrong_with_any_of_many_runs_is_said_before_the_first_is_submitted(
    ada: Causeway, folder: Path
) -> None:
    program(folder, "")
    done = ada("run", "--name", "none", "--each", "time=1h,soon,never", "--", "true")
    assert done.code == 2
    assert ("--each time: " in done.err, "never" in done.err) == (True, True)
    done = ada("run", "--name", "none", "--each", "group=a,b", "--", "true")
    assert done.code == 2
    assert not [row for row in json.loads(ada("ps", "--json").out) if row["name"].startswith("none")]
