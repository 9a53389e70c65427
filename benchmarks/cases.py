"""What is measured. Each case has a name for ``invoke bench --only`` and gives a row or more."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final, TypeAlias

from localaws.plugin import NAMED

from benchmarks import addresses, client, nodes, tracking
from benchmarks import checkpoints as saving
from benchmarks import search as searching
from benchmarks.lifecycle import reads
from benchmarks.lifecycle.edits import EDITS
from benchmarks.lifecycle.project import Project
from benchmarks.lifecycle.walk import Walk, WalkError, drawn, walk
from benchmarks.measure import RUNS, BenchmarkError, Measured, median_of, process
from benchmarks.specs import SIZES, Size, big
from infra.drive import localaws

REPOSITORY: Final = Path(__file__).parents[1]
BLOCKS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    seconds: float
    cpu: float | None = None
    """Of all processors together; None where it was not measured."""
    mib: float | None = None
    """The most memory held; None where it was not a process of its own."""
    bar: str = ""
    """What it should be, as the project promises it."""
    runs: int = 1
    """Seconds and CPU are medians of so many."""


Case: TypeAlias = Callable[[Path], Iterator[Row]]
"""Given an empty folder to work in, measures."""


def _invoke(*arguments: str) -> list[str]:
    """The project's own command line, run from another folder."""
    return [sys.executable, "-m", "invoke", "--search-root", str(REPOSITORY), *arguments]


def _row(what: str, measured: Measured, bar: str = "") -> Row:
    return Row(what, measured.seconds, measured.cpu or None, measured.mib or None, bar, measured.runs)


def _environments(scratch: Path) -> Path:
    folder = scratch / "environments"
    shutil.copytree(REPOSITORY / "environments", folder, ignore=shutil.ignore_patterns("*.lock.yaml"))
    return folder


def _rendered(scratch: Path, environment: str) -> Measured:
    """Rendering from nothing: no build folder, no lock file."""

    def afresh() -> None:
        # Put aside, not deleted: ext4 gives a deleted file's place to no other for a few minutes, and each
        # new file steps over all such places (fs/ext4/ialloc.c, recently_deleted).
        if (scratch / "build").exists():
            (scratch / "build").rename(scratch / f"build-{time.monotonic_ns()}")
        (scratch / "environments" / f"{environment}.lock.yaml").unlink(missing_ok=True)

    return process(_invoke("render", "--env", environment), scratch, before=afresh)


def start(scratch: Path) -> Iterator[Row]:
    """What every command pays before it does anything."""
    listed = process(_invoke("--list"), scratch)
    yield _row("`import tasks`", process([sys.executable, "-c", "import tasks"], REPOSITORY), "0.3 s")
    yield _row("`invoke --list`", listed, "0.3 s")


def validate(scratch: Path) -> Iterator[Row]:
    _environments(scratch)
    yield _row(
        "`invoke validate --env research`", process(_invoke("validate", "--env", "research"), scratch), "1 s"
    )


def render(scratch: Path) -> Iterator[Row]:
    _environments(scratch)
    yield _row("`invoke render --env research`", _rendered(scratch, "research"), "0.5 s")


def growth(scratch: Path) -> Iterator[Row]:
    """A generated spec at three sizes, the last one the size that is promised."""
    folder = scratch / "environments"
    folder.mkdir()
    for name, size in SIZES.items():
        text = big(size.regions, size.sites, size.pools, size.nodes)
        (folder / f"big-{name}.yaml").write_text(text, encoding="utf-8")
        measured = _rendered(scratch, f"big-{name}")
        yield _row(f"`invoke render`, {_words(size)}", measured, "3 s, 300 MB" if name == "100x" else "")


def _words(size: Size) -> str:
    return (
        f"{size.regions:,} regions, {size.sites:,} site{'s' * (size.sites != 1)}, "
        f"{size.pools:,} pools, {size.nodes:,} nodes"
    )


def allocation(_: Path) -> Iterator[Row]:
    found = addresses.measure(BLOCKS)
    yield _row(f"Allocation of {BLOCKS:,} blocks", found["first"], "1 s")
    yield _row(f"The same {BLOCKS:,} from their lock", found["from_lock"])


def machines(_: Path) -> Iterator[Row]:
    """Everything for Chef of the largest spec, with a node object for each machine; nothing is written."""
    size, found = nodes.measure()
    yield _row(f"Chef's {size.nodes:,} node objects, and all beside them", found, "2 s")


def autoscaler(_: Path) -> Iterator[Row]:
    """The batch autoscaler's loops and their parts, each in a process of its own."""
    from benchmarks.autoscaler.figures import rows

    for each in rows():
        yield Row(each.what, each.seconds, each.cpu, each.mib, each.bar)


def researcher(scratch: Path) -> Iterator[Row]:
    """``causeway run`` and ``causeway ps`` with a real API server and the embedded AWS on this machine."""
    yield _row("`causeway run`: packing 5,000 files", client.packed(scratch), "1 s")
    for what, found, bar in client.in_a_cluster(scratch):
        yield _row(what, found, bar)
    for what, seconds in client.REPORTED.items():
        yield Row(what, seconds)


def direct(scratch: Path) -> Iterator[Row]:
    """``causeway run --on`` a machine without a cluster."""
    yield from (_row(what, found, bar) for what, found, bar in client.on_a_machine(scratch))


def plan(scratch: Path) -> Iterator[Row]:
    """``invoke plan`` and plain ``terraform plan`` on the same files, on the embedded AWS, by turns."""
    _environments(scratch)
    done = (0, 2)  # 2: there are changes
    process(_invoke("plan", "--env", "local"), scratch, runs=1, ok=done)  # init, and the embedded AWS
    try:
        plain, environment, root = _plain_plan(scratch)
        turns = [
            (
                process(_invoke("plan", "--env", "local"), scratch, runs=1, ok=done),
                process(plain, root, runs=1, environment=environment),
            )
            for _ in range(RUNS)
        ]
    finally:
        process(_invoke("local.down", "--env", "local"), scratch, runs=1)
    ours, theirs = map(median_of, zip(*turns, strict=True))
    yield _row("`invoke plan --env local`", ours, f"{max(1.1 * theirs.seconds, theirs.seconds + 1):.1f} s")
    yield _row("`terraform plan` on the same files", theirs)


def _plain_plan(scratch: Path) -> tuple[list[str], Mapping[str, str], Path]:
    """Terraform's own command, environment and folder for what `invoke plan` just planned."""
    from infra.commands import session
    from infra.commands.environment import find, load_project

    here = Path.cwd()
    os.chdir(scratch)
    try:
        job = session.job(load_project(find("local")))
        folders = job.folders
    finally:
        os.chdir(here)
    root = (scratch / folders.root).resolve()
    environment = {**job.env, "TF_DATA_DIR": str((scratch / folders.data).resolve()), "TF_IN_AUTOMATION": "1"}
    command = [*job.engine.argv, "plan", "-input=false", f"-out={scratch / 'plain.tfplan'}"]
    return command, environment, root


def lifecycle(scratch: Path) -> Iterator[Row]:
    """Long random walks through edits of the smaller shipped specs; another one each day, the same all day.

    ``BenchmarkError`` with the whole walk where the plan did not say what apply did.
    """
    for environment, steps in (("minimal", 30), ("local", 20)):
        yield _walked(scratch, environment, drawn(_seed(), steps))


def lifecycle_research(scratch: Path) -> Iterator[Row]:
    """The same of `research`, whose applies take minutes: many edits a step, and first one in which each kind
    of name is changed."""
    renamed = [name for name in EDITS if name.startswith("rename_")]
    yield _walked(scratch, "research", [renamed, *drawn(_seed(), 2, edits=6)])


def lifecycle_reads(scratch: Path) -> Iterator[Row]:
    """Each read of AWS after a write finds nothing once, in `research`."""
    project = replace(Project.copied(scratch, "research"), variables=NAMED)
    walked, start = Walk(project, Random(0)), time.monotonic()
    try:
        walked.start()
        aws = localaws.status((project.build / "state/aws").absolute())
        assert aws is not None, "it was applied there"
        actions, rounds = reads.survived(walked, aws)
    except WalkError as problem:
        raise BenchmarkError(str(problem)) from None
    finally:
        project.run("local.down")
    yield Row(
        f"{actions} reads of `research` that find nothing once, in {rounds} applies", time.monotonic() - start
    )


def _seed() -> int:
    return datetime.now(UTC).date().toordinal()


def _walked(scratch: Path, environment: str, steps: list[list[str]]) -> Row:
    project = Project.copied(scratch / environment, environment)
    buckets = [bucket] if (bucket := project.spec().get("state", {}).get("bucket")) else []
    start = time.monotonic()
    try:
        walked = walk(project, _seed(), steps, outlives=buckets)
    except WalkError as problem:
        raise BenchmarkError(f"seed {_seed()}: {problem}") from None
    finally:
        project.run("local.down")
    what = f"{len(walked.steps)} steps of edits to `{environment}`, {walked.refused} refused by checks"
    return Row(what, time.monotonic() - start)


def checkpoints(scratch: Path) -> Iterator[Row]:
    """What checkpoints cost a run that goes on, and one that trains."""
    yield from (Row(what, seconds, bar=bar) for what, seconds, bar in saving.figures(scratch))


def experiments(scratch: Path) -> Iterator[Row]:
    """What MLflow takes and shows, ours beside a plain one."""
    scratch.chmod(0o755)  # PostgreSQL runs as a user of its own
    yield from (Row(what, seconds) for what, seconds in tracking.figures(scratch))


def search(_: Path) -> Iterator[Row]:
    """What early stopping saves, and how long a search thinks; draws docs/search-methods.png."""
    yield from (_row(what, found, bar) for what, found, bar in searching.figures())


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            start,
            validate,
            render,
            growth,
            allocation,
            machines,
            autoscaler,
            researcher,
            direct,
            checkpoints,
            experiments,
            search,
            plan,
        )
    }
)
"""Name → case, in the order of the table."""

LONG: Final[Mapping[str, Case]] = MappingProxyType(
    {each.__name__: each for each in (lifecycle, lifecycle_research, lifecycle_reads)}
)
"""Cases that take an hour or more: measured where they are asked for by name."""
