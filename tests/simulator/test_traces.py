"""Traces: their form, what is wrong with them, the shipped one."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from golden_folders import assert_text
from simulator import bundled_trace

from infra.errors import UsageError
from infra.simulator import command, trace
from infra.simulator.conditions import Conditions

MESSAGES = Path(__file__).parents[1] / "messages/traces.txt"


BAD = (
    "{}",
    '{"submit": 1, "name": "a", "seconds": 5, "gpu": 1}',
    '{"submit": 1, "name": "a", "seconds": 0}',
    '{"submit": 1, "name": "a", "seconds": 5, "pods": 0}',
    '{"submit": 1, "name": "there", "seconds": 5}',
    "nonsense",
    '{"submit": 1, "name": "a", "seconds": 5, "pods": 1e8}',
    '{"submit": 1e300, "name": "a", "seconds": 5}',
    '{"submit": 1, "name": "a", "seconds": 1e18}',
    '{"submit": 1, "name": "a", "seconds": 5, "memory": 99999999999999999}',
    "nonsense",
    *["no job"] * 20,
)


def test_each_bad_line_is_named_and_of_many_the_first(request: pytest.FixtureRequest) -> None:
    with pytest.raises(UsageError) as caught:
        trace.parse(['{"submit": 0, "name": "there", "seconds": 5}', *BAD])
    assert_text(MESSAGES, f"{caught.value}\n", rewrite=request.config.getoption("--update-golden"))


def test_a_trace_of_too_many_pods_is_no_trace() -> None:
    with pytest.raises(UsageError, match="100000000"):
        trace.parse(['{"submit": 0, "name": "a", "seconds": 5, "pods": 100000000}'])


def test_jobs_are_put_in_order_and_empty_lines_left_out() -> None:
    found = trace.parse(
        ['{"submit": 9, "name": "b", "seconds": 5}', "", '{"submit": 1, "name": "a", "seconds": 5}']
    )
    assert [job.name for job in found.jobs] == ["a", "b"]
    assert found.conditions == Conditions()


def test_packed_files_are_read_and_a_missing_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"submit": 1, "name": "a", "seconds": 5}\n'))
    assert len(trace.read(path).jobs) == 1
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UsageError, match=r"t\.jsonl\.gz: "):
        trace.read(path)
    path.write_bytes(gzip.compress(b"{}")[:12] + b"broken")
    with pytest.raises(UsageError, match=r"t\.jsonl\.gz: "):
        trace.read(path)
    with pytest.raises(UsageError, match=r"gone\.jsonl"):
        trace.read(tmp_path / "gone.jsonl")


def test_a_job_asks_as_its_pods_would() -> None:
    shape = trace.Job(submit=0, name="a", seconds=5, gpus=2, labels={"b": "c", "a": "d"}).shape
    assert dict(shape.requests) == {"cpu": 1000, "memory": 2048 << 20, "nvidia.com/gpu": 2, "pods": 1}
    assert shape.selector == (("a", "d"), ("b", "c"))
    assert [each.key for each in shape.tolerations] == ["nvidia.com/gpu"]
    assert trace.Job(submit=0, name="a", seconds=5).shape.tolerations == ()


def test_the_shipped_trace_is_what_its_maker_makes() -> None:
    shipped = trace.read(command.BUNDLED)
    assert shipped == bundled_trace.story()
    experiment = [job for job in shipped.jobs if job.user == "ada"]
    assert experiment[0].pods * experiment[0].gpus == 1
    sizes = [job.pods * job.gpus for job in experiment]
    assert 60 in sizes
    assert max(sizes) == 1600
    assert shipped.seconds < 21 * 86400
