"""What is kept for MLflow on disk: in order, whole, whatever ends the process; and as how few requests it is
sent."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causeway.reported import parsed
from causeway.tracking.record import Place, Record, cost_of, metrics_of, site_of
from causeway.tracking.spool import Names, Spool, artifacts_of
from causeway.tracking.writes import BATCH, entry_of, merged


def left(spool: Spool) -> list[Any]:
    return [entry for entry, _ in spool.waiting()]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], Spool]]:
    """Opens the same one, as a process that begins does."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(Spool(tmp_path)))


def test_entries_stay_in_order_over_files_until_they_are_sent(
    opened: Callable[[], Spool], tmp_path: Path
) -> None:
    spool = opened()
    entries = [{"number": number, "filling": "x" * 300_000} for number in range(40)]
    for entry in entries:
        spool.append(entry)
    assert len([*tmp_path.glob("*.jsonl")]) > 2
    places = [position for _, position in spool.waiting()]
    spool.sent(places[29])
    assert left(spool) == entries[30:]
    again = opened()
    assert left(again) == entries[30:]
    again.append({"number": 40})
    again.sent(places[-1])
    assert left(again) == left(opened()) == [{"number": 40}]
    again.sent(again.end)
    assert again.is_empty
    assert len([*tmp_path.glob("*.jsonl")]) == 1


def test_a_part_of_a_line_was_never_answered(opened: Callable[[], Spool], tmp_path: Path) -> None:
    opened().append({"number": 1})
    with (tmp_path / "000001.jsonl").open("ab") as file:
        file.write(b'{"number": 2, "me')
    spool = opened()
    spool.append({"number": 3})
    assert left(spool) == [{"number": 1}, {"number": 3}]


def test_a_disk_that_is_full_leaves_whole_lines(opened: Callable[[], Spool]) -> None:
    spool = opened()
    spool.append({"number": 1})
    with at_most(1000), pytest.raises(OSError, match="space"):
        spool.append({"number": 2, "filling": "x" * 2000})
    spool.append({"number": 3})
    assert left(spool) == left(opened()) == [{"number": 1}, {"number": 3}]


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Files of this process grow no longer (setrlimit(2)): the nearest to a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


_KEYS = st.sampled_from(["a", "b", "c"])
_ENTRIES = st.lists(
    st.one_of(
        st.builds(
            lambda run, key, value: entry_of("runs/log-metric", {"run_id": run, "key": key, "value": value}),
            st.sampled_from(["one", "two"]), _KEYS, st.integers(),
        ),
        st.builds(
            lambda key, value: entry_of("runs/set-tag", {"run_id": "one", "key": key, "value": value}),
            _KEYS, st.integers(),
        ),
        st.builds(
            lambda count: entry_of(
                BATCH, {"run_id": "one", "params": [{"key": str(at), "value": "x"} for at in range(count)]}
            ),
            st.integers(1, 100),
        ),
        st.builds(lambda: entry_of("runs/update", {"run_id": "one", "status": "FINISHED"})),
    ),
    max_size=40,
)  # fmt: skip


def values(requests: Sequence[Mapping[str, Any]], kind: str) -> list[tuple[str, Any]]:
    return [(each["body"]["run_id"], one) for each in requests for one in each["body"].get(kind, ())]


@given(_ENTRIES)
def test_merged_requests_say_the_same_in_the_same_order(entries: list[dict[str, Any]]) -> None:
    found = [*merged(entries)]
    requests = [request for _, request in found]
    assert sum(count for count, _ in found) == len(entries)
    for kind in ("metrics", "params", "tags"):
        assert values(requests, kind) == values(entries, kind)
    for request in requests:
        body = request["body"]
        assert len(body.get("params", ())) <= 100
        # The later value of a tag comes in a later request.
        assert len({each["key"] for each in body.get("tags", ())}) == len(body.get("tags", ()))
    # What is of another call stays where it was.
    calls = [request["call"] for request in requests if request["call"] != BATCH]
    assert calls == [each["call"] for each in entries if each["call"] != BATCH]


def test_names_are_translated_where_the_server_knows_others() -> None:
    names = Names()
    names.experiment("vision", "causeway-abc")
    text = f'{{"run_id": "uid-1", "experiment_id": "causeway-abc", "at": "{artifacts_of("uid-1")}/x"}}'
    assert names.translated(text) == text
    names.found_experiment("causeway-abc", "7")
    names.found_run("uid-1", "ffff", "mlflow-artifacts:/7/ffff/artifacts")
    assert names.translated(text) == '{"run_id": "ffff", "experiment_id": "7", "at": "7/ffff/artifacts/x"}'
    assert Names(found=names.values).translated(text) == names.translated(text)


def test_numbers_are_written_as_the_api_reads_them() -> None:
    line = '{"step": 3, "at": 1.5, "metrics": {"a": NaN, "b": Infinity, "c": -Infinity, "d": 1}}'
    report = parsed(line)
    assert report is not None
    assert [(each["key"], each["value"]) for each in metrics_of(report)] == [
        ("a", "NaN"), ("b", "Infinity"), ("c", "-Infinity"), ("d", 1.0),
    ]  # fmt: skip


def test_the_site_and_the_cost_are_said_where_they_are_known() -> None:
    places = {"rack-a": Place("t4", 0.0, 0.0), "us-west-2": Place(None, 1.0, 3.0)}
    assert site_of(places, "rack-a", "office") == "rack-a"
    assert site_of(places, "us-west-2a", "us-west-2") == "us-west-2"
    assert site_of(places, "", "") is None
    assert site_of({"rack-a": places["rack-a"]}, "", "") == "rack-a"
    assert (cost_of(places["rack-a"], 2), cost_of(places["us-west-2"], 2)) == ("0.00", "2.00 to 6.00")
    assert cost_of(Place(None, None, None), 2) is None


def test_a_record_of_a_newer_client_is_read() -> None:
    record = Record("http://m", "user-ada", "r-1", "r", "worker-0", places={"a": Place("t4", 1.0, 1.0)})
    assert Record.of(record.text()) == record
    assert Record.of('{"new": 1, ' + record.text()[1:]) == record
