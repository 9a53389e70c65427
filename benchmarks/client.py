"""What a researcher waits for: packing, submitting, listing, the first line of a run on a machine; and what
workers wait for, code from the store.

Against a real API server with JobSet and its webhooks, and the embedded AWS, all on this machine:
the world of the client's tests. Its pods stay unscheduled. A machine without a cluster is a namespace with
a real sshd and systemd.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.measure import RUNS, BenchmarkError, Measured, call, cpu_seconds, median_of, process

REPOSITORY: Final = Path(__file__).parents[1]
FILES: Final = 1_000
SUBMITTED = 500
FETCHES: Final = 64
_CLIENT: Final = [sys.executable, "-m", "causeway"]


REPORTED: Final = {
    "SkyPilot, reported: three files of 1 KB to a pod (skypilot#3154)": 22.0,
    "SkyPilot, reported: ten submissions (skypilot#4231)": 40.0,
}
"""What users of a peer reported, in seconds; on other machines than ours."""


def tree(folder: Path, files: int) -> None:
    """A repository of so many files of 2 to 6 KiB, as of a project in Python."""
    for number in range(files):
        path = folder / f"package{number % 50}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"value_{number} = {number}\n" * (100 + number % 200), encoding="utf-8")
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)


def packed(scratch: Path) -> Measured:
    """Lists 5,000 files, looks for secrets, writes an archive."""
    from causeway.code.archive import write_archive
    from causeway.code.secrets import find_secrets
    from causeway.code.tree import list_tree

    folder = scratch / "five"
    tree(folder, 5_000)

    def work() -> None:
        entries = list_tree(folder)
        find_secrets(folder, entries)
        with (scratch / "archive").open("wb") as out:
            write_archive(folder, entries, out)

    return call(work)


Figure: TypeAlias = tuple[str, Measured, str]
"""What, how long for the client, the bar."""


def in_a_cluster(scratch: Path) -> Iterator[Figure]:
    """BenchmarkError where no API server is."""
    if "KUBEBUILDER_ASSETS" not in os.environ or "CAUSEWAY_CHARTS" not in os.environ:
        raise BenchmarkError("KUBEBUILDER_ASSETS and CAUSEWAY_CHARTS have to name an API server and charts")
    from client.jobset_world import worlds  # tests/client

    scratch.joinpath("world").mkdir()
    with worlds(scratch / "world") as world:
        world.pods._stopping.set()  # it would start a process for each pod
        yield from _measured(scratch, world)


def _measured(scratch: Path, world: Any) -> Iterator[Figure]:
    folder = scratch / "thousand"
    tree(folder, FILES)
    env = {**world.environment("ada"), "HOME": str(scratch), "PYTHONPATH": str(REPOSITORY / "client")}

    def run(*arguments: str, runs: int = RUNS) -> Measured:
        return process([*_CLIENT, *arguments], folder, runs=runs, environment=env)

    submit = ("run", "-d", "--name", "same", "--", "python3", "train.py")
    yield f"The first run of a tree of {FILES:,} files, submitted", run(*submit, runs=1), ""
    before = _sent(world)
    again = run(*submit)
    if _sent(world) != before:
        raise BenchmarkError("code was sent again")
    yield "The same tree again, of which no byte is sent", again, "1.5 s"
    each = ("--each", f"seed=1..{SUBMITTED}", "--yes", "--", "true", "{seed}")
    yield f"{SUBMITTED} runs of that tree by `--each`", run("run", "--name", "many", *each, runs=1), "60 s"
    yield "`causeway ps` of them", run("ps"), "1 s"
    what = f"{FETCHES} workers that fetch 20 MiB from the embedded S3 at once"
    yield what, Measured(_fetches(world), 0, 0), ""


def _sent(world: Any) -> int:
    """How many archives were written."""
    found = world.s3().list_object_versions(Bucket=world.bucket, Prefix="code/")
    return len(found.get("Versions", ()))


def _fetches(world: Any) -> float:
    """So many readers of one archive of 20 MiB at once: what the init containers of a gang ask the store."""
    key = "code/user-ada/large.tar.gz"
    world.s3().put_object(Bucket=world.bucket, Key=key, Body=os.urandom(20 << 20))

    def fetch() -> None:
        world.s3().get_object(Bucket=world.bucket, Key=key)["Body"].read()

    threads = [threading.Thread(target=fetch) for _ in range(FETCHES)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def on_a_machine(scratch: Path) -> Iterator[Figure]:
    """``run --on`` until the program's first line is here. BenchmarkError where no machine can be."""
    from client.ssh_hosts import labs, missing  # tests/client

    if reason := missing():
        raise BenchmarkError(reason)
    folder = scratch / "project"
    tree(folder, FILES)
    (folder / "train.py").write_text('import time\nprint("begun", flush=True)\ntime.sleep(60)\n')
    (scratch / "lab").mkdir()
    with labs(scratch / "lab", "titan-01") as lab:
        laptop: Any = lab.laptop("ada", folder, {"PYTHONPATH": str(REPOSITORY / "client")})
        first = _first_line(laptop, folder)
        yield f"`causeway run --on`, first run of {FILES:,} files, to its first line", first, ""
        again = median_of([_first_line(laptop, folder) for _ in range(RUNS)])
        yield "The same files again, without a connection from before", again, "3 s"
        archives = list(lab["titan-01"].home("ada").rglob("runs/*/code.tar.gz"))
        if len({each.stat().st_ino for each in archives}) != 1 or len(archives) < 6:
            raise BenchmarkError("code was sent again")


def _first_line(laptop: Any, folder: Path) -> Measured:
    """Until a run's first line; then run and connection end."""
    words = ("run", "--on", "titan-01", "--name", "same", "--gpus", "1", "--", "python3", "train.py")
    start, before = time.perf_counter(), cpu_seconds()
    process = subprocess.Popen(
        [*_CLIENT, *words], cwd=folder, env=laptop.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    name = ""
    for line in process.stdout:
        name = line.split()[0] if line.endswith(" started\n") else name
        if line == "begun\n":
            break
    else:
        raise BenchmarkError(process.stderr.read())
    seconds = time.perf_counter() - start
    process.send_signal(signal.SIGINT)
    process.communicate()
    spent = cpu_seconds() - before
    stopped = laptop("stop", name)
    if stopped.code:
        raise BenchmarkError(stopped.err)
    sockets = Path(laptop.environment["XDG_RUNTIME_DIR"]) / "causeway-ssh/%C"
    close = ["ssh", "-O", "exit", "-o", f"ControlPath={sockets}", "titan-01"]
    subprocess.run(close, env=laptop.environment, capture_output=True, check=True)
    return Measured(seconds, spent, 0)
