"""``logs -f`` between two looks: what ends there, and what keeps a look from an answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from causeway.cluster import leavings, runs
from causeway.cluster.connection import RefusedError
from causeway.cluster.leavings import Start
from causeway.cluster.runs import Run, Worker
from causeway.commands import following
from causeway.commands.following import Followed
from causeway.commands.wait import wait_for
from causeway.errors import CausewayError, UnreachableError

BEGUN = datetime(2026, 5, 1, 12, tzinfo=UTC)
_Look = Run | CausewayError


def run(state: str, attempt: int, *workers: Worker) -> Run:
    return Run(
        "r-1", "n", "u", state, BEGUN, BEGUN, 1.0, "ada", "", attempt, "", {}, workers, attempt=attempt
    )


def pod(rank: int, attempt: int, state: str = "running", after: float = 0) -> Worker:
    created = BEGUN + timedelta(seconds=100 * attempt + after)
    name = f"r-1-{rank}-{attempt}-{after}"
    return Worker(name, "worker", rank, state, "titan", None, None, attempt=attempt, created=created)


class Scene:
    """What the cluster answers, look by look; what pods have said; what is in the store."""

    def __init__(self) -> None:
        self.looks: list[_Look] = []
        self.said: dict[str, list[str]] = {}
        self.left: dict[tuple[str, int, float], list[str]] = {}
        self.shown: list[tuple[str, str]] = []
        self.store: Callable[[], None] = lambda: None
        self.out = Console(file=StringIO(), width=200)

    @property
    def notes(self) -> str:
        assert isinstance(self.out.file, StringIO)
        return self.out.file.getvalue()

    def follow(self, **only: Any) -> Run:
        offer = SimpleNamespace(store=SimpleNamespace(bucket="b"))
        date = "Fri, 01 May 2026 12:00:00 GMT"
        cluster: Any = SimpleNamespace(date=lambda: date, host="https://api", offer=offer)

        def shows(_: object) -> Callable[[object, str, str], None]:
            return lambda _at, who, line: self.shown.append((who, line))

        return Followed(self.out, cluster, "n", "r-1", shows=shows, **only).until_it_ends()

    def find(self, *_: Any, **__: Any) -> Run:
        look = self.looks[0] if len(self.looks) == 1 else self.looks.pop(0)
        if isinstance(look, CausewayError):
            raise look
        return look

    def stamped(self, _: Any, __: Any, worker: Worker, since: str) -> list[tuple[str, str]]:
        lines = [(f"{at:04}", line) for at, line in enumerate(self.said.get(worker.name, []), 1)]
        return [each for each in lines if each[0] > since]

    def starts(self, _: Any, __: str) -> list[Start]:
        self.store()
        return [
            Start(who, attempt, int(BEGUN.timestamp() + at), ())
            for who, attempt, at in sorted(self.left, key=lambda key: key[1:])
        ]

    def lines(self, _: Any, start: Start) -> list[str]:
        return self.left[start.worker, start.attempt, start.at - BEGUN.timestamp()]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene()
    clock = [0.0]

    def passes(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(runs, "find", made.find)
    monkeypatch.setattr(following, "stamped", made.stamped)
    monkeypatch.setattr(leavings, "starts", made.starts)
    monkeypatch.setattr(leavings, "lines", made.lines)
    monkeypatch.setattr(time, "sleep", passes)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return made


def test_what_a_pod_said_after_the_last_look_comes_from_the_store_and_nothing_twice(scene: Scene) -> None:
    first, second = pod(0, 0), pod(0, 1, "done")
    scene.looks = [run("running", 0, first), run("running", 1, second), run("done", 1, second)]
    scene.said = {first.name: ["a", "b"], second.name: ["e"]}
    scene.left = {("worker-0", 0, 3): ["a", "b", "c", "d"], ("worker-0", 1, 103): ["e"]}
    assert scene.follow().state == "done"
    assert [line for _, line in scene.shown] == ["a", "b", "c", "d", "e"]


def test_an_attempt_that_nobody_saw_comes_from_the_store(scene: Scene) -> None:
    first, third = pod(0, 0, "failed"), pod(0, 2, "done")
    scene.looks = [run("running", 0, first), run("running", 2, third), run("done", 2, third)]
    scene.said = {first.name: ["a"], third.name: ["c"]}
    scene.left = {("worker-0", 0, 3): ["a"], ("worker-0", 1, 103): ["b"], ("worker-0", 2, 203): ["c"]}
    scene.follow()
    assert [line for _, line in scene.shown] == ["a", "b", "c"]


def test_what_ended_before_the_first_look_is_not_shown(scene: Scene) -> None:
    gone, now = pod(0, 3, after=5), pod(0, 3, "done", after=50)
    scene.looks = [run("running", 3, gone), run("running", 3, now), run("done", 3, now)]
    scene.said = {gone.name: ["b"], now.name: ["c"]}
    scene.left = {("worker-0", 2, 203): ["older"], ("worker-0", 3, 301): ["old"], ("worker-0", 3, 306): ["b"]}
    scene.follow()
    assert [line for _, line in scene.shown] == ["b", "c"]


def test_only_a_worker_or_an_attempt_is_followed(scene: Scene) -> None:
    pods = [pod(0, 0), pod(1, 0)], [pod(0, 1), pod(1, 1)]
    scene.said = {each.name: [each.name] for some in pods for each in some}
    scene.looks = [run("running", 0, *pods[0]), run("running", 1, *pods[1]), run("done", 1, *pods[1])]
    looks = [*scene.looks]
    scene.follow(worker="worker-1")
    assert [line for _, line in scene.shown] == [pods[0][1].name, pods[1][1].name]
    scene.looks, scene.shown = looks, []
    assert scene.follow(attempt=0).state == "running"
    assert [line for _, line in scene.shown] == [each.name for each in pods[0]]


def test_what_keeps_the_store_from_an_answer_is_said_and_tried_again_at_the_end(scene: Scene) -> None:
    answers: Iterator[CausewayError | None] = iter([CausewayError("AWS refuses"), None])

    def store() -> None:
        if error := next(answers):
            raise error

    scene.store = store
    first, second = pod(0, 0), pod(0, 1, "done")
    scene.looks = [run("running", 0, first), run("running", 1, second), run("running", 1, second),
                   run("done", 1, second)]  # fmt: skip
    scene.left = {("worker-0", 0, 3): ["a"]}
    scene.follow()
    assert scene.shown == [("worker-0", "a")]
    assert "AWS refuses" in scene.notes


@pytest.mark.parametrize("times", [1, 4])
def test_a_lost_connection_is_taken_up_again_and_what_ended_meanwhile_is_shown(
    scene: Scene, times: int
) -> None:
    first, last = pod(0, 0), pod(0, 0, "done", after=40)
    scene.looks = [run("running", 0, first), *[UnreachableError("away")] * times, run("done", 0, last)]
    scene.said = {first.name: ["a"], last.name: ["d"]}
    scene.left = {("worker-0", 0, 3): ["a", "b"], ("worker-0", 0, 20): ["c"], ("worker-0", 0, 44): ["d"]}
    assert scene.follow().state == "done"
    assert [line for _, line in scene.shown] == ["a", "b", "c", "d"]
    assert scene.notes.count("away") == 1


def test_a_cluster_that_stays_away_is_given_up_and_the_run_goes_on(scene: Scene) -> None:
    scene.looks = [run("running", 0, pod(0, 0)), UnreachableError("away")]
    with pytest.raises(UnreachableError, match=r"causeway logs -f r-1"):
        scene.follow()


@pytest.mark.parametrize("state", ["done", "failed", "stopped", "timed-out"])
def test_who_waits_outlives_a_lost_connection(scene: Scene, state: str) -> None:
    """Of a night, where ``logs -f`` gives up after ten minutes."""
    away: list[_Look] = [UnreachableError("away"), RefusedError("busy", 503)]
    scene.looks = [run("running", 0), *away * 500, run(state, 0)]
    cluster: Any = SimpleNamespace()
    assert wait_for(scene.out, cluster, "n", ["r-1"], as_json=False) == (state != "done")
    assert time.monotonic() > 8 * 3600
    scene.looks = [RefusedError("no", 403)]
    with pytest.raises(RefusedError):
        wait_for(scene.out, cluster, "n", ["r-1"], as_json=False)


@pytest.mark.parametrize(("code", "ends"), [(403, True), (500, False), (429, False)])
def test_what_the_cluster_refuses_for_good_ends_it(scene: Scene, code: int, ends: bool) -> None:
    refused = RefusedError("refused", code)
    scene.looks = [run("running", 0), refused, run("done", 0)]
    if ends:
        with pytest.raises(RefusedError):
            scene.follow()
    else:
        assert scene.follow().state == "done"


_JOBSET: Mapping[str, Any] = {"spec": {}, "status": {}, "metadata": {"labels": {}}}


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["starting", "waiting"], "starting"),
        (["done"], "running"),
        (["done", "starting"], "running"),
        (["failed", "running"], "running"),
    ],
)
def test_a_run_some_of_whose_workers_have_ended_runs(states: Sequence[str], state: str) -> None:
    workers = [
        replace(pod(at, 0, state), started=BEGUN if state in ("running", "done", "failed") else None)
        for at, state in enumerate(states)
    ]
    assert runs.state_of(_JOBSET, None, workers)[0] == state


def test_a_worker_that_was_lost_and_comes_again_has_not_ended() -> None:
    workers = [pod(0, 0, "failed"), pod(0, 0, "starting", after=9)]
    assert runs.state_of(_JOBSET, None, workers)[0] == "starting"
