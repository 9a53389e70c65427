"""Many runs in one namespace: names of new ones, and their list, without reading all of them from etcd."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from causeway.cluster import runs
from causeway.cluster.connection import RefusedError


class Names:
    """A namespace of the API: who creates a name that is taken is refused."""

    host = "https://api.example:6443"

    def __init__(self, *names: str) -> None:
        self.names = {*names}
        self.lists = 0
        self.asked: list[str] = []

    def call(self, method: str, _: str, body: Any = None, **query: str) -> Any:
        if method == "GET":
            assert "PartialObjectMetadata" in query["accept"]
            self.lists += 1
            return {"items": [{"metadata": {"name": name}} for name in [*self.names]], "metadata": {}}
        name = body["metadata"]["name"]
        self.asked.append(name)
        if name in self.names:
            raise RefusedError("it exists", 409)
        self.names.add(name)
        return body


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "causeway/numbers"


def made(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def submitted(there: Any, base: str = "resnet", namespace: str = "user-ada") -> str:
    return runs.submit(there, namespace, base, made)


def all_of(there: Any, count: int) -> Sequence[str]:
    return [*runs.submit_all(there, "user-ada", "resnet", [made] * count)]


def test_the_first_submission_lists_and_later_ones_do_not() -> None:
    there = Names("resnet-3", "resnet-x", "resnet-old-7", "vit-9")
    assert [submitted(there), submitted(there)] == ["resnet-4", "resnet-5"]
    assert all_of(there, 30) == [f"resnet-{number}" for number in range(6, 36)]
    assert submitted(there) == "resnet-36"
    assert there.lists == 1
    assert submitted(there, base="vit") == "vit-10"
    assert submitted(there, namespace="team-vision") == "resnet-37"
    assert there.lists == 3


def test_what_others_have_submitted_meanwhile_is_passed_over() -> None:
    there = Names()
    assert submitted(there) == "resnet-1"
    there.names |= {f"resnet-{number}" for number in (2, 3)}
    assert (submitted(there), there.lists) == ("resnet-4", 1)
    there.names |= {f"resnet-{number}" for number in range(5, 500)}
    assert (submitted(there), there.lists) == ("resnet-500", 2)
    assert len(there.asked) < 20
    there.names |= {"resnet-501", "resnet-503"}
    assert {*all_of(there, 4)} == {"resnet-502", "resnet-504", "resnet-505", "resnet-506"}


def test_what_was_remembered_long_ago_is_not_relied_on(cache: Path) -> None:
    """Others may have submitted more, and removed these."""
    there = Names()
    submitted(there)
    there.names.add("resnet-40")
    (remembered,) = (path for path in cache.rglob("*") if path.is_file())
    os.utime(remembered, (time.time() - 90_000,) * 2)
    assert submitted(there) == "resnet-41"
    remembered.write_text("no number")
    assert submitted(there) == "resnet-42"


def test_a_list_of_runs_is_what_the_api_server_has_in_memory() -> None:
    """From etcd, 500 runs took the API server seconds."""
    asked: dict[str, str] = {}

    class Lists:
        offer = SimpleNamespace(machines=())

        def call(self, _: str, path: str, **query: str) -> Any:
            asked[path.rpartition("/")[2]] = query.get("resourceVersion", "")
            columns = [{"name": "TerminalState"}, {"name": "Suspended"}]
            return {"items": [], "rows": [], "columnDefinitions": columns, "metadata": {}}

    there: Any = Lists()
    assert runs.runs(there, "user-ada") == []
    assert runs.trials(there, "user-ada") == []
    assert asked == dict.fromkeys(("jobsets", "workloads", "pods"), "0")


@pytest.mark.parametrize(("reason", "method"), [(runs.REJECTED, "DELETE"), ("Deactivated", "PATCH")])
def test_a_run_that_was_refused_for_good_is_queued_by_another_workload(
    monkeypatch: pytest.MonkeyPatch, reason: str, method: str
) -> None:
    """Kueue makes a new one of a Workload that was deleted (``tests/autoscaler/kube/test_kueue.py``)."""
    calls: list[tuple[str, str]] = []
    workload = {
        "metadata": {"name": "jobset-x"},
        "spec": {"active": False},
        "status": {"conditions": [{"type": "Evicted", "status": "True", "reason": reason}]},
    }
    monkeypatch.setattr(runs, "workload_of", lambda *_: workload)
    cluster: Any = SimpleNamespace(call=lambda how, path, *_, **__: calls.append((how, path)))
    run: Any = SimpleNamespace(name="x-1", namespace="user-ada")
    assert runs.activate(cluster, run, active=True)
    ((how, path),) = calls
    assert (how, path.endswith("/workloads/jobset-x")) == (method, True)
