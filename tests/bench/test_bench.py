"""The benchmarks measure what they say. How fast anything is, is no test."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import run
from benchmarks.cases import CASES, LONG, Row
from benchmarks.measure import BenchmarkError, Measured, median_of, process
from benchmarks.specs import SIZES, big
from infra.load import load
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock


@pytest.mark.parametrize("name", ["1x", "10x"])
def test_a_generated_spec_is_sound_and_as_large_as_it_says(name: str, tmp_path: Path) -> None:
    size = SIZES[name]
    path = tmp_path / "big.yaml"
    path.write_text(big(size.regions, size.sites, size.pools, size.nodes))
    spec = load(path).spec
    cluster, _ = resolve(spec, Lock(), "big")
    assert len(cluster.regions) == size.regions
    assert len(cluster.sites) == size.sites
    assert len(cluster.pools) == size.pools
    assert sum(len(site.nodes) for site in cluster.sites) == size.nodes
    # By transit gateway, each site has one connection, to the hub.
    reached = 1 if cluster.network.interconnect == "transit-gateway" else size.regions
    assert len(cluster.network.links) == reached * size.sites


def test_more_regions_than_there_are() -> None:
    with pytest.raises(ValueError, match="regions"):
        big(1000, 1, 1, 1)


def test_a_process_is_measured_with_its_memory(tmp_path: Path) -> None:
    code = "import pathlib; pathlib.Path('ran').open('a').write('x'); b = bytearray(64 << 20)"
    small = process([sys.executable, "-c", "pass"], tmp_path, runs=1)
    found = process([sys.executable, "-c", code], tmp_path, runs=3)
    assert (tmp_path / "ran").read_text() == "xxx"
    assert found.mib > small.mib + 50
    assert found.runs == 3


def test_what_comes_before_a_run_is_done_before_each(tmp_path: Path) -> None:
    done: list[int] = []
    process([sys.executable, "-c", "pass"], tmp_path, runs=2, before=lambda: done.append(1))
    assert done == [1, 1]


def test_a_failed_command_is_no_measurement(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print('why'); sys.exit(3)"]
    with pytest.raises(BenchmarkError, match=r"(?s)exit code 3.*why"):
        process(command, tmp_path, runs=1)
    assert process(command, tmp_path, runs=1, ok=(3,)).runs == 1


def test_the_table_stands_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "figures.md"
    page.write_text(f"before\n{run.BEGIN}\nold\n{run.END}\nafter\n")
    assert run.into_page(page, "new\n")
    assert run.into_page(page, "new\n")
    assert page.read_text() == f"before\n{run.BEGIN}\nnew\n{run.END}\nafter\n"
    page.write_text("none\n")
    assert not run.into_page(page, "new\n")
    assert page.read_text() == "none\n"


def test_a_run_keeps_what_other_runs_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, page = tmp_path / "results.json", tmp_path / "figures.md"
    monkeypatch.setattr(run, "RESULTS", results)
    monkeypatch.setattr(run, "PAGE", page)
    monkeypatch.setattr(run, "CASES", {"one": lambda _: iter([Row("first", 0.5)]), "two": _fails})
    page.write_text(f"{run.BEGIN}\n{run.END}\n")
    assert run.main(["--only", "one"]) == 0
    assert run.main(["--only", "two"]) == 1
    kept = json.loads(results.read_text())["cases"]
    assert [row["what"] for row in kept["one"]["rows"]] == ["first"]
    assert "two" not in kept
    assert "| first | 0.50 s |" in page.read_text()


def _fails(_: Path) -> list[Row]:
    raise BenchmarkError("it broke")


def test_the_kept_results_are_of_cases_that_exist() -> None:
    kept = json.loads(run.RESULTS.read_text())["cases"]
    assert set(kept) <= {*CASES, *LONG, run.PEERS}
    for case in kept.values():
        assert [Row(**row) for row in case["rows"]]


def test_a_figure_is_the_median_of_its_runs_and_the_most_memory() -> None:
    found = median_of([Measured(9.0, 1.0, 10), Measured(1.0, 3.0, 30), Measured(2.0, 2.0, 20)])
    assert found == Measured(2.0, 2.0, 30, 3)
