"""MLflow in a run's pod: the sidecar as a process, real programs with MLflow's own client, a real server, and
the embedded S3. Containers of a pod share an address and a folder, as these processes do."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from client.mlflow_server import PYTHON, ROOT, Mlflow, mlflow, needs_mlflow, parameters, tags
from client.pods import wait
from client.process import Laptop
from client.process import program as write_program
from client.tracking_pod import pod
from ports import reserved

from causeway.tracking.forwarding import Forwarded

pytestmark = needs_mlflow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mlflow]:
    with mlflow(tmp_path_factory.mktemp("tracking") / "mlflow") as found:
        yield found


def run_of(server: Mlflow, name: str) -> Any:
    """The only run of that name."""
    (found,) = [each for each in server.runs("vision") if each["info"]["run_name"] == name]
    return found


def test_a_program_logs_with_nothing_set_and_the_run_has_its_facts(
    server: Mlflow, aws: str, s3: Any, tmp_path: Path
) -> None:
    with pod(tmp_path / "pod", aws, server.address, "plain-1", CAUSEWAY_ATTEMPT="1") as made:
        (made.folder / "output/metrics.jsonl").write_text(
            '{"step": 1, "at": 1700000000.5, "metrics": {"reported": 0.5, "odd": NaN}}\n'
            "not a line\n"
            '{"step": 2, "at": 1700000001.5, "metrics": {"reported": 0.25, "no name!": 1}}\n'
        )
        # As whoever looks at the run keeps it.
        started = json.dumps({"image": "lab/torch@sha256:0123", "gpu_models": []}).encode()
        s3.put_object(Bucket="work", Key="runs/user-ada/plain-1/started.json", Body=started)
        (made.folder / "output/usage.jsonl").write_text(
            '{"models": ["V100"], "driver": "550"}\n'
            '{"at": 1700000030.2, "cpus": 2.5, "memory": 3000000, '
            '"gpus": [{"use": 90.0, "memory": 4096, "total": 16384}, '
            '{"use": 70.0, "memory": 2048, "total": 16384}]}\n'
            '{"at": 1700000060.2, "cpus": 2.0, "gpus": [{"use": null, "memory": null, "total": null}]}\n'
        )
        said = made.run("""
            import mlflow, pathlib
            with mlflow.start_run() as run:
                mlflow.log_param("lr", 0.001)
                mlflow.log_metric("loss", 2.0, step=1)
                mlflow.log_metrics({"loss": 1.0, "accuracy": 0.5}, step=2)
                mlflow.set_tag("note", "mine")
                pathlib.Path("weights.bin").write_bytes(b"w" * 3_000_000)
                pathlib.Path("empty.txt").touch()
                mlflow.log_artifact("weights.bin")
                mlflow.log_artifact("empty.txt")
                back = mlflow.get_run(run.info.run_id)
                print("back", back.data.metrics["loss"], back.data.params["lr"])
                print(sorted(each.path for each in mlflow.MlflowClient().list_artifacts(run.info.run_id)))
            # A second run of the program is one of MLflow's own, in the same experiment.
            with mlflow.start_run(run_name="plain-1-second"):
                mlflow.log_metric("loss", 3.0)
        """)
        assert "back 1.0 0.001" in said
        assert "['empty.txt', 'weights.bin']" in said
        made.end(3, reason="ValueError: nan")
        assert made.said().count("cannot be parsed") == 1
    found = run_of(server, "plain-1")
    assert server.history(found["info"]["run_id"], "loss") == [(1, 2.0), (2, 1.0)]
    assert server.history(found["info"]["run_id"], "reported") == [(1, 0.5), (2, 0.25)]
    used = {each["key"]: each["value"] for each in found["data"]["metrics"] if "system/" in each["key"]}
    assert used == {
        "system/gpu_utilization_percentage": 80.0,
        "system/gpu_memory_usage_megabytes": pytest.approx(6144 * 2**20 / 1e6),
        "system/gpu_memory_usage_percentage": 18.75,
        "system/cpus": 2.0,
        "system/memory_usage_megabytes": 3.0,
    }
    assert len(server.history(found["info"]["run_id"], "system/cpus")) == 2
    assert parameters(found) == {"lr": "0.001", "job.gpus.count": "2", "set.lr": "1e-3"}
    assert found["info"]["status"] == "FAILED"
    ours = {name.removeprefix("causeway."): value for name, value in tags(found).items()}
    assert (ours["note"], ours["person"], ours["mlflow.user"]) == ("mine", "ada", "ada")
    assert (ours["site"], ours["gpu"], ours["restarts"]) == ("rack-a", "v100", "1")
    assert (ours["exit"], ours["reason"]) == ("3", "ValueError: nan")
    assert ours["image_digest"] == "lab/torch@sha256:0123"
    assert float(ours["cost_usd"]) == pytest.approx(2 * float(ours["hours"]), abs=0.01)
    second = run_of(server, "plain-1-second")
    assert second["info"]["experiment_id"] == found["info"]["experiment_id"]
    assert [*s3.list_objects_v2(Bucket="work", Prefix="runs/user-ada/.unsent/").get("Contents", ())] == []


_HUNDRED = """
    import mlflow, sys
    mlflow.start_run()
    for step in range(100):
        mlflow.log_metric("loss", 100.0 - step, step=step)
        print(step, flush=True)
        if step in (30, 50, 70):
            sys.stdin.readline()
    mlflow.log_param("end", "reached")
    mlflow.end_run()
"""


def follow(process: subprocess.Popen[str], step: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == str(step):
            return
    raise AssertionError(f"it ended before step {step}")


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


_EARLY = """
    import mlflow
    mlflow.set_experiment("of-the-program")
    with mlflow.start_run() as run:
        mlflow.log_metric("loss", 1.0)
        for number in range(2):
            with mlflow.start_run(run_name=f"child-{number}", nested=True):
                mlflow.log_metric("loss", float(number))
        try:
            mlflow.log_text("x", "x.txt")
        except Exception as error:
            print("artifact:", type(error).__name__, error)
    try:
        mlflow.search_runs()
    except Exception as error:
        print("search:", error)
"""
"""It starts by itself an experiment, and runs below its own."""


def test_what_is_logged_survives_the_server_and_the_sidecar_in_order_once_each(
    server: Mlflow, aws: str, s3: Any, tmp_path: Path
) -> None:
    """While the server is away, a sidecar is killed twice, and another run begins and ends: what that left in
    the bucket is sent by the next sidecar that starts."""
    left = "runs/user-ada/.unsent/early-1/"
    with pod(tmp_path / "pod", aws, server.address, "stubborn-1") as made:
        program = made.begin(_HUNDRED)
        follow(program, 30)
        server.kill()
        try:
            go_on(program)
            follow(program, 50)
            made.kill()
            made.start()  # as the kubelet does
            go_on(program)
            follow(program, 70)
            made.kill()
            with pod(tmp_path / "early", aws, server.address, "early-1") as early:
                said = early.run(_EARLY)
                assert "artifact: HTTPError" in said
                assert said.count("not answer") == 2, said
                early.end()
            assert s3.list_objects_v2(Bucket="work", Prefix=left)["KeyCount"] == 1
        finally:
            server.start()
        made.start()
        go_on(program)
        said, _ = program.communicate(timeout=300)
        assert program.returncode == 0, said
        wait(lambda: s3.list_objects_v2(Bucket="work", Prefix=left)["KeyCount"] == 0)
        made.end()
    found = run_of(server, "stubborn-1")
    assert server.history(found["info"]["run_id"], "loss") == [(step, 100.0 - step) for step in range(100)]
    assert parameters(found)["end"] == "reached"
    assert found["info"]["status"] == "FINISHED"
    found = run_of(server, "early-1")
    assert server.history(found["info"]["run_id"], "loss") == [(0, 1.0)]
    assert (found["info"]["status"], tags(found)["causeway.exit"]) == ("FINISHED", "0")
    children = server.runs("of-the-program")
    assert sorted(each["info"]["run_name"] for each in children) == ["child-0", "child-1"]
    assert {tags(each)["mlflow.parentRunId"] for each in children} == {found["info"]["run_id"]}
    assert {each["info"]["status"] for each in children} == {"FINISHED"}


_MANY = """
    import mlflow, time
    mlflow.start_run()
    began = time.monotonic()
    for step in range(40):
        mlflow.log_metrics({f"m{number:03}": float(step) for number in range(1000)}, step=step)
        time.sleep(max(0.0, began + (step + 1) / 4 - time.monotonic()))
        print(step, flush=True)
    mlflow.end_run()
"""


def test_thousands_of_metrics_a_second_survive_a_server_that_is_away(
    server: Mlflow, aws: str, tmp_path: Path
) -> None:
    """40,000, which are two files of the spool. It is killed in the midst of what it is sent. In the database
    each is there once."""
    with pod(tmp_path / "pod", aws, server.address, "many-1") as made:
        program = made.begin(_MANY)
        follow(program, 5)
        server.kill()
        try:
            follow(program, 35)
        finally:
            server.start()
        said, _ = program.communicate(timeout=300)
        assert program.returncode == 0, said
        wait(lambda: _is_sent(made.folder / "tracking"), 600)
        made.end()
    assert _counted(server) == (40_000, 40_000, 40_000, 0, 39)


def _is_sent(spool: Path) -> bool:
    """Who asks the database instead, while MLflow writes to it, locks it or finds it locked."""
    last = max(spool.glob("*.jsonl"))
    return bool(json.loads((spool / "sent.json").read_text()) == [int(last.stem), last.stat().st_size])


def _counted(server: Mlflow) -> tuple[int, ...]:
    """Metrics of ``many-1`` as the database has them: all, those that differ, those with the value that was
    logged, the first and the last step."""
    with closing(sqlite3.connect(server.folder / "mlflow.db", timeout=60)) as opened:
        found: tuple[int, ...] = opened.execute(
            "SELECT count(*), count(DISTINCT key || '/' || step), sum(value = step), min(step), max(step) "
            "FROM metrics JOIN runs USING (run_uuid) WHERE runs.name = 'many-1'"
        ).fetchone()
    return found


def test_a_later_start_goes_on_with_the_same_run(server: Mlflow, aws: str, tmp_path: Path) -> None:
    """In another pod, whose folder is empty. Its program chooses an experiment: MLflow's client refuses a
    run of another one, so this one is shown in it."""
    program = """
        import mlflow, os
        mlflow.set_experiment("another")
        with mlflow.start_run():
            mlflow.log_metric("loss", float(os.environ["LOSS"]), step=int(os.environ["STEP"]))
    """
    for attempt in ("0", "1"):
        with pod(tmp_path / attempt, aws, server.address, "again-1", CAUSEWAY_ATTEMPT=attempt) as made:
            made.run(program, LOSS=str(9 - int(attempt)), STEP=attempt)
            made.end(1 - int(attempt))
    found = run_of(server, "again-1")
    assert server.history(found["info"]["run_id"], "loss") == [(0, 9.0), (1, 8.0)]
    assert (tags(found)["causeway.restarts"], found["info"]["status"]) == ("1", "FINISHED")


def test_ranks_other_than_the_first_log_nothing_and_fail_at_nothing(
    server: Mlflow, aws: str, tmp_path: Path
) -> None:
    """By the address that the runtime gives them; and a whole pod of another worker."""
    program = """
        import mlflow, os
        with mlflow.start_run():
            mlflow.log_metric("loss", float(os.environ["VALUE"]))
            mlflow.log_text("x" * 100000, os.environ["VALUE"] + ".txt")
        with mlflow.start_run(run_name="extra-" + os.environ["VALUE"]):
            mlflow.log_param("a", "b")
    """
    with (
        pod(tmp_path / "one", aws, server.address, "ranks-1") as made,
        pod(tmp_path / "two", aws, server.address, "ranks-1", JOB_COMPLETION_INDEX="1") as other,
    ):
        made.run(program, VALUE="0")
        made.run(program, VALUE="1", MLFLOW_TRACKING_URI=made.programs["MLFLOW_TRACKING_URI"] + "/others")
        other.run(program, VALUE="2")
        other.end()
        made.end()
    found = run_of(server, "ranks-1")
    assert server.history(found["info"]["run_id"], "loss") == [(0, 0.0)]
    names = [each["info"]["run_name"] for each in server.runs("vision")]
    assert [name for name in names if name.startswith("extra")] == ["extra-0"]
    listed = server.call("GET", f"artifacts/list?run_id={found['info']['run_id']}")
    assert [each["path"] for each in listed["files"]] == ["0.txt"]


class Guard(Forwarded):
    """In front of the server, as its authentication: it lets in who brings the token that is valid now. The
    real one, with the cluster's own tokens, is tested where the server is rendered."""

    valid: ClassVar[str]
    mlflow: ClassVar[Mlflow]

    def do_any(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {self.valid}":
            self.refuse("token-refused", 401, "UNAUTHENTICATED")
            return
        connection = HTTPConnection(self.mlflow.address.removeprefix("http://"), timeout=60)
        self.pass_back(self.ask(connection, self.path, None, {}))
        connection.close()


def test_the_token_is_the_one_that_the_kubelet_has_written_last(
    server: Mlflow, aws: str, tmp_path: Path
) -> None:
    Guard.mlflow, Guard.valid = server, "first"
    with ThreadingHTTPServer(("127.0.0.1", 0), Guard) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{listener.server_address[1]}"
        with pod(tmp_path / "pod", aws, url, "renewed-1") as made:
            (made.folder / "token").write_text("first\n")
            log = "import mlflow; mlflow.log_metric('loss', 1.0, step={})"
            made.run(log.format(1))
            wait(lambda: server.history(run_of(server, "renewed-1")["info"]["run_id"], "loss"))
            Guard.valid = "second"
            made.run(log.format(2))
            wait(lambda: "token-refused" in made.said())
            (made.folder / "token").write_text("second\n")
            made.end()
        listener.shutdown()
    found = run_of(server, "renewed-1")
    assert server.history(found["info"]["run_id"], "loss") == [(1, 1.0), (2, 1.0)]


@contextmanager
def shown(folder: Path, env: Mapping[str, str]) -> Iterator[Mlflow]:
    """``causeway ui``, of this machine."""
    with reserved(1) as (port,):
        process = Laptop(folder, env).begin(
            "ui", "--local", "--port", str(port), stdout=subprocess.PIPE, start_new_session=True
        )
        server = Mlflow(folder, port, None)
        try:
            wait(server.is_there, 240)
            yield server
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def local(environment: Mapping[str, str], folder: Path, *, has_mlflow: bool = True) -> Laptop:
    """The client of a Python that has MLflow, too: ``causeway-client[tracking]``."""
    packages = next((PYTHON.parents[1] / "lib").glob("python3*/site-packages"))
    paths = [str(ROOT / "client"), environment.get("PYTHONPATH"), str(packages) if has_mlflow else ""]
    path = os.pathsep.join(filter(None, paths))
    return Laptop(folder, {**environment, "PYTHONPATH": path, "MLFLOW_DISABLE_TELEMETRY": "true"})


def test_a_run_of_this_machine_is_recorded_without_a_line_of_code(
    folder: Path, home: Path, environment: Mapping[str, str]
) -> None:
    causeway = local(environment, folder)
    write_program(folder, "print('first')")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        git = ["git", "-C", str(folder), "-c", "user.name=ada", "-c", "user.email=ada@lab.example"]
        subprocess.run([*git, *words], check=True)
    write_program(
        folder,
        """
        import causeway, sys
        for step in range(1500):
            causeway.report(step, **{"loss": 3.0 - step, "not a name!": 1.0})
        sys.exit(int(sys.argv[1]))
        """,
    )
    (folder / "job.yaml").write_text(
        "name: toy\nrun: python3 train.py {code}\nrestarts: 0\ngpus: 0\ntracking: {experiment: ablations}\n"
    )
    for code in (0, 4):
        done = causeway("run", "--local", "job.yaml", "--set", f"code={code}")
        assert done.code == bool(code), done.err
    # One that logs by itself, and later one whose record is not made at once, for want of MLflow.
    write_program(
        folder,
        """
        import mlflow, causeway
        causeway.report(1, reported=0.5)
        with mlflow.start_run():
            mlflow.log_metric("loss", 0.25)
            mlflow.log_text("kept", "note.txt")
            with mlflow.start_run(nested=True, run_name="below"):
                pass
        """,
    )
    own = ("run", "--local", "--name", "toy", "--set", "tracking.experiment=ablations")
    assert causeway(*own, "--", str(PYTHON), "train.py").code == 0
    database = home / ".local/share/causeway/mlflow/toy"
    assert [path.read_text() for path in database.glob("artifacts/**/note.txt")] == ["kept"]
    runs = home / ".local/share/causeway/runs"
    wait(lambda: len([*runs.glob("*/recorded.json")]) == 3, 240)
    plain = local({**environment, "PYTHONPATH": ""}, folder, has_mlflow=False)
    assert "causeway-client[tracking]" in plain(*own, "--", "true").out
    off = ("--set", "tracking=false", "--", "sh", "-c", "test -z $MLFLOW_TRACKING_URI")
    untracked = plain(*own, *off)
    assert (untracked.code, "causeway-client[tracking]" in untracked.out) == (0, False)
    with shown(folder, causeway.environment) as server:
        found = {each["info"]["run_name"]: each for each in server.runs("ablations")}
        assert {*found} == {"toy-1", "toy-2", "toy-3", "toy-4", "below"}
        one, two, three, four = (found[f"toy-{number}"] for number in range(1, 5))
        assert server.history(one["info"]["run_id"], "loss") == [(step, 3.0 - step) for step in range(1500)]
        assert [each["info"]["status"] for each in (one, two, three, four)] == [
            "FINISHED", "FAILED", "FINISHED", "FINISHED",
        ]  # fmt: skip
        assert (parameters(two)["job.run"], parameters(two)["set.code"]) == ("python3 train.py 4", "4")
        ours = tags(two)
        record = json.loads((runs / "toy-2/run.json").read_text())
        assert (ours["causeway.exit"], ours["causeway.code"]) == ("4", record["code"])
        assert "+import causeway" in ours["causeway.diff"]
        assert len(ours["mlflow.source.git.commit"]) == 40
        # What the program logged, and what is known, are one record.
        assert server.history(three["info"]["run_id"], "loss") == [(0, 0.25)]
        assert server.history(three["info"]["run_id"], "reported") == [(1, 0.5)]
        assert tags(three)["causeway.exit"] == "0"
    # By the program on the path, where the client's Python has no MLflow.
    with shown(folder, {**plain.environment, "PATH": f"{PYTHON.parent}:{environment['PATH']}"}) as server:
        assert {"toy-1", "toy-3"} <= {run["info"]["run_name"] for run in server.runs("ablations")}


def test_programs_of_another_mlflow_keep_their_database(
    folder: Path, home: Path, environment: Mapping[str, str]
) -> None:
    """One that MLflow refuses for its version: the record is beside it, and the program's is as it was."""
    causeway = local(environment, folder)
    database = home / ".local/share/causeway/mlflow/other/mlflow.db"
    database.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database)) as made:
        made.execute("CREATE TABLE alembic_version (version_num TEXT)")
        made.execute("INSERT INTO alembic_version VALUES ('of-another')")
        made.commit()
    before = database.read_bytes()
    assert causeway("run", "--local", "--name", "other", "--", "true").code == 0
    recorded = home / ".local/share/causeway/runs/other-1/recorded.json"
    wait(recorded.exists, 240)
    assert json.loads(recorded.read_text())["database"] == str(database.with_name("records.db"))
    assert database.read_bytes() == before


def test_autologging_of_a_framework(server: Mlflow, aws: str, tmp_path: Path) -> None:
    with pod(tmp_path / "pod", aws, server.address, "auto-1") as made:
        made.run("""
            import mlflow
            mlflow.autolog(log_models=False)
            from sklearn.linear_model import LogisticRegression
            LogisticRegression(C=0.5).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
        """)
        made.end()
    found = run_of(server, "auto-1")
    assert parameters(found)["C"] == "0.5"
    assert "training_accuracy_score" in {each["key"] for each in found["data"]["metrics"]}
