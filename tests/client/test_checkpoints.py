"""Which checkpoints are whole, kept and resumed from; and a copier that dies at any of its calls."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway import keep, places
from causeway.checkpoints import (
    SETTLED,
    Checkpoint,
    Entry,
    File,
    Part,
    Policy,
    is_whole,
    kept,
    measured,
    next_start,
    next_to_send,
    obsolete,
    step_of,
    whole,
)
from causeway.cluster.copying import last_problem
from causeway.cluster.saved import Saved, last_of, recall, remember
from causeway.places import Place
from causeway.restoring import link, restore
from causeway.saving import SAVED, Saver, look, parts_in
from causeway.storage import MANIFESTS, Folder, MissingError

_WORKERS = ("worker-0", "worker-1", "worker-2")


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    drawn: dict[tuple[str, str], Part] = {}
    numbered = draw(st.booleans())  # those of older programs are not
    for _ in range(draw(st.integers(0, 12))):
        worker, step = draw(st.sampled_from(_WORKERS)), draw(st.integers(1, 3))
        file = File(f"step-{step}/{worker}", 1, "x", draw(st.integers(1, 6)))
        metrics = draw(st.sampled_from([{}, {"loss": 1.0}, {"loss": 2.0}, {"loss": float("nan")}]))
        start = draw(st.integers(1, 3))
        before = [each.sequence for each in drawn.values() if (each.worker, each.start) == (worker, start)]
        sequence = 1 + max(before, default=0) if numbered else 0
        part = Part(worker, f"step-{step}", start, (file,), metrics, sequence)
        drawn[(part.worker, part.id)] = part
    return [*drawn.values()]


policies = st.builds(
    Policy,
    st.sampled_from([_WORKERS[:1], _WORKERS[:2], _WORKERS]),
    st.integers(1, 3),
    st.sampled_from([None, "loss"]),
    st.booleans(),
)


@given(parts(), policies)
def test_a_checkpoint_is_whole_when_each_worker_wrote_its_part_of_it(
    found: list[Part], policy: Policy
) -> None:
    checkpoints = whole(found, policy.workers)
    for checkpoint in checkpoints:
        assert tuple(part.worker for part in checkpoint.parts) == policy.workers
        assert len({(part.name, part.start) for part in checkpoint.parts}) == 1
    assert checkpoints == sorted(checkpoints, key=lambda each: (each.order, each.name), reverse=True)
    assert all(checkpoint.parts[0].start < next_start(found) for checkpoint in checkpoints)


@given(parts(), policies, st.data())
def test_what_is_removed_is_needed_by_nobody(found: list[Part], policy: Policy, data: st.DataObject) -> None:
    """Whichever workers have come to it, in whichever order."""
    checkpoints = whole(found, policy.workers)
    wanted = kept(checkpoints, policy)
    assert checkpoints[: policy.keep] == wanted[: policy.keep]
    values = [value for each in checkpoints if (value := each.value("loss")) is not None]
    if policy.metric and values:
        best = max(values) if policy.maximize else min(values)
        assert best in [each.value("loss") for each in wanted]
    reading = data.draw(st.sampled_from(found)).id if found else ""
    left = list(found)
    for worker in data.draw(st.permutations(policy.workers)):
        gone = obsolete(left, policy, worker, [reading])
        assert {part.worker for part in gone} <= {worker}
        assert reading not in {part.id for part in gone}
        left = [part for part in left if part not in gone]
        assert [each for each in kept(whole(left, policy.workers), policy) if each in wanted] == wanted
    if checkpoints:
        newest = checkpoints[0].order
        assert all(part in left for part in found if part.order > newest)


def part(worker: str, step: int = 1, start: int = 1, sequence: int = 0, path: str = "") -> Part:
    """A part of a checkpoint, of one file."""
    file = File(path or f"step-{step}/{worker}", 1, worker, 5)
    return Part(worker, f"step-{step}", start, (file,), {}, sequence)


def test_parts_of_two_starts_and_files_of_one_name_are_never_joined() -> None:
    first, other = _WORKERS[:2]
    assert whole([part(first, start=1), part(other, start=2)], (first, other)) == []
    assert len(whole([part(first, start=2), part(other, start=2), part(other)], (first, other))) == 1
    same = [part(first, path="step-1/model"), part(other, path="step-1/model")]
    assert whole(same, (first, other)) == []


def test_a_part_that_was_written_twice_does_not_become_whole_when_one_is_removed() -> None:
    first, other = _WORKERS[:2]
    stored = [part(worker, step, sequence=step) for worker in (first, other) for step in (1, 2)]
    stored.append(part(first, 1, sequence=3))
    policy = Policy((first, other), keep=1)
    assert obsolete(stored, policy, first, ()) == []
    left = [each for each in stored if each not in obsolete(stored, policy, other, ())]
    assert [each.name for each in whole(left, policy.workers)] == ["step-2"]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-1200", 1200), ("step-1200.pt", 1200), ("checkpoint-500", 500), ("epoch=3-step=500.ckpt", 500),
        ("epoch=3-val_loss=0.25-step=7-v2.ckpt", 7), ("model.12", 12), ("backup-0", 0), ("epoch3.pt", 3),
        ("runs", None), ("best.h5", None), ("latest.weights.h5", None), ("step-5.tmp", 5),
    ],
)  # fmt: skip
def test_a_checkpoint_has_its_step_in_its_name(name: str, step: int | None) -> None:
    assert step_of(name) == step


def test_what_was_renamed_is_whole_at_once_and_else_when_it_has_rested(tmp_path: Path) -> None:
    """On a real file system."""

    def found(name: str) -> Entry:
        return next(each for each in look(tmp_path) if each.name == name)

    (tmp_path / "step-1.tmp/deep").mkdir(parents=True)
    (tmp_path / "step-1.tmp/deep/model").write_text("x")
    (tmp_path / "step-2.pt.tmp").write_text("x")
    (tmp_path / "step-3").mkdir()
    (tmp_path / "step-3/model").write_text("x")
    (tmp_path / "step-4").symlink_to(tmp_path / "step-3")
    time.sleep(0.05)
    for name in ("step-1", "step-2.pt"):
        assert not is_whole(found(f"{name}.tmp"), time.time_ns() + 10**12)
        (tmp_path / f"{name}.tmp").rename(tmp_path / name)
        assert is_whole(found(name), None)
    written = found("step-3").modified
    assert not is_whole(found("step-3"), None)
    assert not is_whole(found("step-3"), written + (SETTLED - 1) * 10**9)
    assert is_whole(found("step-3"), written + SETTLED * 10**9)
    with (tmp_path / "step-1/deep/model").open("a") as file:
        file.write("more")
    assert not is_whole(found("step-1"), None), "written to since it was renamed"
    assert {each.name for each in look(tmp_path)} == {"step-1", "step-2.pt", "step-3"}


def test_a_line_of_metrics_that_cannot_be_read_is_left_out_and_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a program wrote there itself ended the thread that saves checkpoints."""
    storage = storage_in(tmp_path)
    folder, saver = saver_of(tmp_path, storage, metric="loss")
    (tmp_path / "metrics").write_text(
        'epoch 1\n[1]\n{"step": 3}\n{"step": 3, "metrics": {"loss": "low"}}\n'
        '{"step": 3, "metrics": {"loss": 0.5}}\n'
    )
    made(folder, "step-3", 1000)
    for _ in range(2):
        saver.save(LATER)
    assert [part.metrics for part in parts_in(storage)] == [{"loss": 0.5}]
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_what_was_reported_is_added_and_what_is_no_number_is_not() -> None:
    before = replace(part("worker-0", 3), metrics={"loss": 1.0})
    now = measured(before, {3: {"loss": float("nan"), "accuracy": 0.5}, 4: {"loss": 0.1}})
    assert now.metrics == {"loss": 1.0, "accuracy": 0.5}


def test_of_many_the_newest_is_sent_and_of_parts_every_one() -> None:
    entries = [Entry(f"step-{n}", {f"step-{n}": (1, n)}, n, n) for n in (1, 2, 3)]
    for in_order, first in ((False, "step-3"), (True, "step-1")):
        assert getattr(next_to_send(entries, in_order=in_order), "name", None) == first
    assert next_to_send([], in_order=False) is None


def made(folder: Path, name: str, at: int, text: str = "weights") -> None:
    """A checkpoint, whole, of a time in seconds."""
    (folder / name).write_text(text)
    os.utime(folder / name, ns=(at * 10**9, at * 10**9))


def resumed(folder: Path) -> str:
    """The checkpoint that a start goes on from; empty where it starts from the beginning."""
    return str(json.loads((folder / ".resumed.json").read_text())["name"])


def saver_of(tmp_path: Path, storage: Folder, **policy: Any) -> tuple[Path, Saver]:
    """Of a first start."""
    folder = tmp_path / "checkpoints"
    folder.mkdir(exist_ok=True)
    if not (folder / ".resumed.json").exists():
        restore([storage], Policy(("worker-0",), **policy), folder)
    saver = Saver(
        folder, storage, Policy(("worker-0",), **policy), "worker-0", tmp_path / "metrics", "rack-a"
    )
    return folder, saver


def storage_in(tmp_path: Path) -> Folder:
    (tmp_path / "kept").mkdir(exist_ok=True)
    return Folder(tmp_path / "kept")


LATER = 4102444800 * 10**9
"""After all times of these tests, in nanoseconds."""


@pytest.mark.parametrize("again", [False, True], ids=["one copier", "a copier that began again"])
def test_a_clock_that_is_put_back_loses_no_checkpoint(tmp_path: Path, again: bool) -> None:
    storage = storage_in(tmp_path)
    now = int(time.time())
    folder, saver = saver_of(tmp_path, storage, keep=2)
    for step, at in ((1, now), (2, now - 3600), (3, now - 3500)):
        made(folder, f"step-{step}", at)
        if again:
            _, saver = saver_of(tmp_path, storage, keep=2)
        saver.save(LATER)
    kept_ = whole(parts_in(storage), ("worker-0",))
    assert [each.name for each in kept_] == ["step-3", "step-2"]
    assert kept_[0].parts[0].site == "rack-a"
    (tmp_path / "next").mkdir()
    restore([storage], Policy(("worker-0",)), tmp_path / "next")
    assert resumed(tmp_path / "next") == "step-3"


def test_what_was_passed_over_is_not_sent_by_a_copier_that_began_again(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    folder, saver = saver_of(tmp_path, storage)
    for step in (1, 2, 3):
        made(folder, f"step-{step}", 1000 + step)
    saver.save(LATER)
    _, saver = saver_of(tmp_path, storage)
    saver.save(LATER)
    assert [part.name for part in parts_in(storage)] == ["step-3"]


def test_a_name_that_is_no_text_keeps_no_other_from_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = storage_in(tmp_path)
    folder, saver = saver_of(tmp_path, storage)
    made(folder, os.fsdecode(b"step-4\xff"), 2000)
    (folder / "step-3").mkdir()
    made(folder / "step-3", os.fsdecode(b"model\xff"), 1500)
    made(folder, "step-2", 1000)
    for _ in range(2):
        saver.save(LATER)
    assert [part.name for part in parts_in(storage)] == ["step-2"]
    assert capsys.readouterr().err.count("UTF-8") == 2


def test_a_folder_that_became_a_file_is_said_and_put_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path, "worker", 0)
    policy = Policy(("worker-0",))
    place.begin(policy)
    made(place.checkpoints, "step-1", 1000)
    place.saver(policy).save(LATER)
    shutil.rmtree(place.checkpoints)
    place.checkpoints.write_text("not checkpoints")
    assert place.save_last(policy) == ""
    assert capsys.readouterr().err
    place.begin(policy)
    assert (place.checkpoints / "step-1").read_text() == "weights"
    (aside,) = place.checkpoints.parent.glob("worker-0.*")
    assert aside.read_text() == "not checkpoints"


def test_why_reads_what_the_sidecar_can_not_copy_until_it_can(tmp_path: Path) -> None:
    """The lines are those of the sidecar itself, over a store that refuses and then takes."""
    stopped, tries = threading.Event(), 0

    def copy(last: bool) -> None:
        nonlocal tries
        tries += 1
        if tries in (1, 2, 4):
            raise OSError(f"full: {tries // 4}")
        if tries == 5:
            stopped.set()

    said = io.StringIO()
    problems = []
    (tmp_path / "output").mkdir()

    def copy_and_look(last: bool) -> None:
        problems.append(last_problem(said.getvalue().splitlines()))
        copy(last)

    with redirect_stderr(said):
        keep._follow(tmp_path, stopped, copy_and_look, 0.01)
    assert problems[:6] == ["", "full: 0", "full: 0", "", "full: 1", ""]
    assert last_problem(said.getvalue().splitlines()) == ""


def test_a_disk_that_is_full_keeps_what_is_there_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, "worker", 0)
    policy = Policy(("worker-0",))
    place.begin(policy)
    made(place.checkpoints, "step-1", 1000)
    place.ended.parent.mkdir(exist_ok=True)
    place.ended.write_text(json.dumps({"exit": 0, "at": 3000}))
    place.saver(policy).save(LATER)
    made(place.checkpoints, "step-2", 2000)

    def full(_: Folder, files: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "send", full)
        assert place.save_last(policy)
    assert place.is_kept
    assert place.save_last(policy) == ""
    kept_ = whole(parts_in(Folder(tmp_path / "kept")), ("worker-0",))
    assert [each.name for each in kept_] == ["step-2", "step-1"]


def test_a_hundred_thousand_files_are_one_checkpoint(tmp_path: Path) -> None:
    """The store is in memory: what is tried is the copier, not the disk."""
    storage = Memory()
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    policy = Policy(("worker-0",))
    restore([storage], policy, folder)
    (folder / "step-1").mkdir()
    for number in range(100_000):
        (folder / f"step-1/{number}").touch()
    Saver(folder, storage, policy, "worker-0", tmp_path / "metrics").save(LATER)
    (part,) = parts_in(storage)
    assert len(part.files) == 100_000


# -- Copying, and bringing back ---------------------------------------------------------------------------


class KilledError(BaseException):
    """As by SIGKILL."""


@dataclass
class Memory:
    """A storage that is killed with who asks it, at one of its calls, before it does anything."""

    objects: dict[str, bytes] = field(default_factory=dict)
    calls: int = 0
    dies_at: int = -1

    def _call(self) -> None:
        at, self.calls = self.calls, self.calls + 1
        if at == self.dies_at:
            raise KilledError

    def sizes(self, prefix: str) -> dict[str, int]:
        self._call()
        return {key: len(data) for key, data in self.objects.items() if key.startswith(prefix)}

    def read(self, key: str) -> bytes:
        self._call()
        if key not in self.objects:
            raise MissingError(key)
        return self.objects[key]

    def write(self, key: str, data: bytes) -> None:
        self._call()
        self.objects[key] = data

    def send(self, files: Mapping[str, Path]) -> None:
        for key, path in files.items():
            self.write(key, path.read_bytes())

    def fetch(self, files: Mapping[str, Path]) -> None:
        for key, path in files.items():
            path.write_bytes(self.read(key))

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._call()
            self.objects.pop(key, None)


@dataclass
class Machine:
    """A worker's folder, and the copier beside it, which is started again when it was killed."""

    folder: Path
    worker: str
    policy: Policy
    storage: Memory
    saver: Saver | None = None

    def begin(self) -> list[str]:
        """Again, if it is killed meanwhile."""
        self.saver = None
        while True:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            with suppress(KilledError):
                return restore([self.storage], self.policy, self.folder)

    def write(self, step: int, at: int) -> None:
        folder = self.folder / f"step-{step}"
        folder.mkdir()
        for name in ("model", "optimizer"):
            (folder / f"{name}-{self.worker}").write_text(f"{step} {name} {self.worker}")
            os.utime(folder / f"{name}-{self.worker}", ns=(at, at))
        os.utime(folder, ns=(at, at))

    def report(self, step: int, loss: float) -> None:
        with (self.folder / "metrics").open("a") as file:
            file.write(json.dumps({"step": step, "metrics": {"loss": loss}}) + "\n")

    def save(self) -> None:
        """Until it has worked, as what is killed is started again."""
        while True:
            try:
                if self.saver is None:
                    metrics = self.folder / "metrics"
                    self.saver = Saver(self.folder, self.storage, self.policy, self.worker, metrics)
                self.saver.save(time.time_ns() + SETTLED * 10**9)
            except KilledError:
                self.saver = None
                self.killed()
            else:
                return

    def killed(self) -> None:
        """What a start would find now is a checkpoint that is whole, or the beginning."""
        wanted = whole(parts_in(self.storage), self.policy.workers)
        scratch = self.folder.with_name("scratch")
        scratch.mkdir()
        restore([self.storage], self.policy, scratch)
        assert resumed(scratch) == (wanted[0].name if wanted else "")
        check(scratch, wanted[0] if wanted else None, self.policy)
        shutil.rmtree(scratch)


def check(folder: Path, checkpoint: Checkpoint | None, policy: Policy) -> None:
    """All that was written is there, and nothing else."""
    found = {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")
    }  # fmt: skip
    step = step_of(checkpoint.name) if checkpoint else None
    assert found == {
        f"step-{step}/{name}-{worker}": f"{step} {name} {worker}"
        for name in ("model", "optimizer")
        for worker in (policy.workers if checkpoint else ())
    }


def scenario(machines: list[Machine]) -> None:
    """Two starts, five checkpoints; the third is the best, as is known only when the fourth is there."""
    for begin, steps in ((0, (1, 2, 3)), (100, (4, 5))):
        for machine in machines:
            machine.begin()
        for step in steps:
            for machine in machines:
                machine.write(step, 10**9 * (begin + step))
            for machine in machines:
                machine.save()
            for machine in machines:
                machine.report(step, 0.5 if step == 3 else 1.0)
                machine.save()


@pytest.mark.parametrize("workers", [_WORKERS[:1], _WORKERS[:2]])
def test_a_copier_that_is_killed_at_any_call_loses_nothing_and_leaves_nothing(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    calls: list[int] = []

    def run(dies_at: int) -> dict[str, bytes]:
        policy = Policy(workers, keep=2, metric="loss")
        storage = Memory(dies_at=dies_at)
        folder = tmp_path / str(dies_at)
        machines = [Machine(folder / worker, worker, policy, storage) for worker in workers]
        scenario(machines)
        calls.append(storage.calls)
        storage.dies_at = -1
        found = whole(parts_in(storage), workers)
        assert {each.name for each in found} == {"step-3", "step-4", "step-5"}
        machines[0].killed()
        shutil.rmtree(folder)
        return storage.objects

    undisturbed = run(-1)
    assert calls[0] > 20
    for at in range(calls[0]):
        assert run(at) == undisturbed


@settings(max_examples=60, deadline=None)
@given(
    damage=st.lists(st.tuples(st.integers(0, 100), st.sampled_from(["gone", "cut", "flipped"])), max_size=4)
)
def test_what_is_damaged_is_skipped_and_said_and_the_one_before_is_used(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    policy, storage = Policy(_WORKERS[:1], keep=3), Memory()
    machine = Machine(folder / "worker", _WORKERS[0], policy, storage)
    machine.begin()
    for step in (1, 2, 3):
        machine.write(step, step * 10**9)
        machine.save()
    steps_hurt = set()
    for number, how in damage:
        key = sorted(storage.objects)[number % len(storage.objects)]
        data = storage.objects[key]
        if how == "gone":
            del storage.objects[key]
        else:
            storage.objects[key] = data[:-1] if how == "cut" else bytes([data[0] ^ 1, *data[1:]])
        steps_hurt.add(int(key.partition("step-")[2][0]))
        if not storage.objects:
            break
    said = machine.begin()
    name = resumed(machine.folder)
    # The store's own damage may be undone: what was hurt twice can be whole.
    newest = max({1, 2, 3} - steps_hurt, default=0)
    assert (step_of(name) or 0) >= newest
    if not said:
        assert not any("manifests/" in key for key in storage.objects), "of what is gone nobody knows"
    files = {path.name: path.read_text() for path in (machine.folder / name).iterdir()} if name else {}
    assert files == {
        f"{each}-worker-0": f"{step_of(name)} {each} worker-0"
        for each in (("model", "optimizer") if name else ())
    }
    shutil.rmtree(folder)


def test_a_manifest_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    storage = Folder(tmp_path / "kept")
    part = Part("worker-0", "step-1", 1, (File("step-1/../../evil", 1, "x", 1),))
    (tmp_path / "x").write_text("x")
    storage.send({f"files/worker-0/{part.id}/step-1/../../evil": tmp_path / "x"})
    storage.write(f"{MANIFESTS}worker-0/{part.id}.json", part.text().encode())
    (tmp_path / "there").mkdir()
    restore([storage], Policy(("worker-0",)), tmp_path / "there")
    assert resumed(tmp_path / "there") == ""
    assert not (tmp_path / "evil").exists()


def test_a_run_that_goes_on_with_another_takes_its_own_checkpoints_first(tmp_path: Path) -> None:
    policy = Policy(_WORKERS[:1])
    before, own = Memory(), Memory()
    old = Machine(tmp_path / "old", _WORKERS[0], policy, before)
    old.begin()
    old.write(7, 10**12)
    old.save()
    folder = tmp_path / "new"
    folder.mkdir()
    restore([own, before], policy, folder)
    assert resumed(folder) == "step-7"
    new = Machine(folder, _WORKERS[0], policy, own)
    new.save()
    assert own.objects == {}, "what it resumed from stays where it is"
    new.write(8, 10**9)
    new.save()
    shutil.rmtree(folder)
    folder.mkdir()
    restore([own, before], policy, folder)
    assert resumed(folder) == "step-8"


@pytest.mark.parametrize(("every", "pauses"), [(0.3, 0.1), (0.05, 0.05)])
def test_what_failed_is_tried_again_soon_however_seldom_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: float, pauses: float
) -> None:
    """`sync: 6h`: a store that was away for a minute must not cost six hours."""
    monkeypatch.setattr(keep, "EVERY", 0.1)
    dues: list[float] = []

    def wait(folder: Path, stopped: threading.Event, until: float) -> bool:
        dues.append(until - time.monotonic())
        return len(dues) == 4

    monkeypatch.setattr(keep, "_wait", wait)

    def copy(last: bool) -> None:
        if len(dues) == 2:
            raise OSError("no answer")

    keep._follow(tmp_path, threading.Event(), copy, every)
    assert dues == pytest.approx([every, every, pauses, every], abs=0.02)


def test_beside_a_program_a_full_disk_is_tried_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sync: 6h` of runs without a cluster: the same."""
    monkeypatch.setattr(places, "_AGAIN", 0.05)
    tries: list[float] = []
    enough = threading.Event()

    class Full:
        def save(self, alive: int | None) -> None:
            tries.append(time.monotonic())
            if len(tries) == 2:
                enough.set()
            raise OSError(errno.ENOSPC, "full")

    full: Any = Full()
    with places.saving([full], 1.0):
        assert enough.wait(10)
    assert tries[1] - tries[0] < 0.5


def test_the_sidecar_says_each_checkpoint_once_and_ps_takes_the_last(tmp_path: Path) -> None:
    folder, saver = saver_of(tmp_path, storage_in(tmp_path))
    saving, said = keep._Saving(saver, tmp_path / "output", None), io.StringIO()
    with redirect_stderr(said):
        for step in (7, 8):
            made(folder, f"step-{step}", 1000 + step)
            for _ in range(2):
                saving(last=False)
    lines = said.getvalue().splitlines()
    assert len(lines) == 2
    found = last_of("x-3", [*lines, f"{SAVED}cut of"])
    assert found is not None
    assert (found.run, found.name, found.size, found.at) == ("x-3", "step-8", len("weights"), 1008)
    assert last_of("x-3", ["other"]) is None


def test_a_manifest_of_a_newer_copier_is_read_and_of_an_older_one() -> None:
    """Who could not read it would take it for damaged, and remove it."""
    written = json.loads(Part("worker-0", "step-1", 1, (File("step-1", 1, "x", 5),)).text())
    assert Part.of(json.dumps({**written, "new": 1})).step == 1
    assert (
        Part.of(json.dumps({name: written[name] for name in ("worker", "name", "start", "files")})).step == 1
    )


def test_what_copying_took_is_the_sidecars_to_say_and_not_in_the_manifest(tmp_path: Path) -> None:
    """Older programs read no manifest with a field more than theirs: `cls(**values)`."""

    class Slow(Folder):
        def send(self, files: Mapping[str, Path]) -> None:
            time.sleep(0.01)
            super().send(files)

    storage = Slow(storage_in(tmp_path)._root)
    folder, saver = saver_of(tmp_path, storage)
    said = io.StringIO()
    with redirect_stderr(said):
        made(folder, "step-7", 1007)
        keep._Saving(saver, tmp_path / "output", None)(last=False)
    found = last_of("x-3", said.getvalue().splitlines())
    assert found is not None
    assert found.seconds > 0
    (manifest,) = storage.sizes(MANIFESTS)
    assert {*json.loads(storage.read(manifest))} == {
        "worker", "name", "start", "files", "metrics", "sequence", "site",
    }  # fmt: skip
    assert [part.seconds for part in parts_in(storage)] == [0.0]


def test_what_the_store_has_leaves_what_a_sidecar_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ps` remembers what copying took, and `why` looks at the store, which does not know it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cluster: Any = SimpleNamespace(offer=SimpleNamespace(store=SimpleNamespace(bucket="b")))

    def remembered(name: str, seconds: float) -> float:
        remember(cluster, "user-ada", Saved("x-3", name, 7, seconds, 1007.0))
        found = recall(cluster, "user-ada", "x")
        assert found is not None
        assert found.name == name
        return found.seconds

    assert remembered("step-7", 90.0) == 90.0
    assert remembered("step-7", 0.0) == 90.0
    assert remembered("step-8", 0.0) == 0.0


def test_workers_of_one_machine_link_the_folder_of_checkpoints_at_once(tmp_path: Path) -> None:
    """The code has that folder already, with something in it: `checkpoints/.gitkeep`."""
    for turn in range(20):
        run = tmp_path / str(turn)
        kept_in, there = run / "workers/worker-0/checkpoints", run / "code/checkpoints"
        for each in (kept_in, there):
            each.mkdir(parents=True)
        for number in range(20):
            (there / f"{number}.txt").write_text(str(number))
        together = threading.Barrier(8)

        def meet(run: Path = run, kept_in: Path = kept_in, together: threading.Barrier = together) -> None:
            together.wait()
            link(run / "code", "checkpoints", kept_in)

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(meet) for _ in range(8)]:
                done.result()
        assert there.readlink() == kept_in
        assert len(list(kept_in.iterdir())) == 20
