"""Areas of integration tests: what is declared, when a pass is stale, and running a small project's areas."""

from __future__ import annotations

import ast
import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import integration
import pytest

TOY = """
[area]
for = "a toy"
minutes = 2
workers = 0
tools = ["$TOY"]
about = ["subject.txt"]
[area.tests]
"tests/test_toy.py" = "what a toy does"

[other]
for = "another"
minutes = 50
workers = 0
about = ["other.txt"]
[other.tests]
"tests/test_other.py" = "what another does"
"""
CONFTEST = """
import pytest
def pytest_configure(config):
    config.addinivalue_line("markers", "integration: x")
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.integration)
"""
PASSES = "def test_it() -> None:\n    pass\n"
FAILS = "def test_it() -> None:\n    assert False\n"
PASSES_THE_SECOND_TIME = """
import pathlib
def test_it(pytestconfig) -> None:
    before = pathlib.Path(pytestconfig.rootpath, ".git/before")
    again = before.exists()
    before.touch()
    assert again
"""

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A project with two areas."""

    def made(test: str = PASSES) -> Path:
        files = {
            integration.DECLARATION: TOY, "tests/conftest.py": CONFTEST, "tests/test_toy.py": test,
            "tests/test_other.py": PASSES, "subject.txt": "one", "other.txt": "one",
            ".gitignore": "__pycache__\n.pytest_cache\n", "pytest.ini": "[pytest]\n",
        }  # fmt: skip
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
        return tmp_path

    return made


def reasons(root: Path) -> dict[str, str]:
    known = integration.records(root)
    return {
        name: integration.why_stale(area, known.get(name), root)
        for name, area in integration.declared(root).items()
    }


def record(root: Path) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((root / integration.RESULTS).read_text())
    return written


# -- What is declared -------------------------------------------------------------------------------------


def test_a_test_file_is_in_one_area() -> None:
    areas = integration.declared().values()
    named = Counter(file for area in areas for file in {*area.files(integration.ROOT)})
    assert {file for file, count in named.items() if count > 1} == set()


@pytest.mark.parametrize("area", integration.declared().values(), ids=lambda area: area.name)
def test_each_pattern_matches_something(area: integration.Area) -> None:
    root = integration.ROOT
    assert [pattern for pattern in area.about if not any(root.glob(pattern))] == []
    for pattern in area.tests:
        file, _, name = pattern.partition("::")
        assert any(root.glob(file)), pattern
        if name and "*" not in name:
            tree = ast.parse((root / file).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, pattern


def test_each_area_installs_a_part_of_all_packages() -> None:
    def listed(*areas: str) -> set[str]:
        command = [str(integration.ROOT / "tests/packages.sh"), "--list", *areas]
        return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())

    areas = {"test", *integration.declared()} - {"packages"}
    assert set().union(*map(listed, areas)) == listed()
    with pytest.raises(subprocess.CalledProcessError):
        listed("netwrok")


@pytest.mark.parametrize(
    ("nodeid", "area"),
    [
        ("tests/network/test_lab.py::test_nodes_are_apart", "network"),
        ("tests/network/test_laptops_groups.py::test_it[a-b]", "network"),
        ("tests/autoscaler/kube/test_kube_client.py::test_it[real-1]", "autoscaler"),
        ("tests/autoscaler/kube/test_kube_client.py::test_it[here-1]", None),
        ("tests/autoscaler/kube/deeper/test_kube_client.py::test_it[real-1]", None),
        ("tests/test_spec_walks.py::test_a_walk_through_edits[x]", "terraform"),
        ("tests/test_spec_walks.py::test_a_move_loses_nothing", None),
        ("tests/schema/test_reference.py::test_it", None),
    ],
)
def test_the_area_of_a_test(nodeid: str, area: str | None) -> None:
    assert integration.area_of(nodeid) == area


# -- Fresh and stale --------------------------------------------------------------------------------------


def test_a_pass_is_fresh_until_a_file_changes_that_the_area_is_about(make: Make) -> None:
    root = make()
    assert set(reasons(root).values()) == {"never passed"}
    assert integration.main(["--all"], root) == 0
    assert set(reasons(root).values()) == {""}
    (root / "elsewhere.txt").write_text("new")
    assert set(reasons(root).values()) == {""}
    for changed in ("subject.txt", "tests/test_toy.py"):
        text = (root / changed).read_text()
        (root / changed).write_text(text + "\n")
        assert [name for name, why in reasons(root).items() if why] == ["area"]
        (root / changed).write_text(text)
    assert set(reasons(root).values()) == {""}


def test_a_pass_without_a_tool_is_stale_where_the_tool_is(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make()
    monkeypatch.delenv("TOY", raising=False)
    assert integration.main(["--area", "area"], root) == 0
    assert record(root)["area"]["tools"] == []
    monkeypatch.setenv("TOY", str(root))
    assert reasons(root)["area"]
    assert integration.main(["--area", "area"], root) == 0
    assert record(root)["area"]["tools"] == ["$TOY"]
    monkeypatch.delenv("TOY")
    assert reasons(root)["area"] == ""


# -- Running ----------------------------------------------------------------------------------------------


def test_a_pass_is_recorded_and_a_failure_is_not(make: Make) -> None:
    root = make(FAILS)
    assert integration.main([], root) == 1
    assert list(record(root)) == ["other"]
    assert (record(root)["other"]["passed"], record(root)["other"]["retried"]) == (1, [])


def test_what_passes_when_it_is_run_again_alone_is_named(make: Make) -> None:
    root = make(PASSES_THE_SECOND_TIME)
    assert integration.main(["--area", "area"], root) == 0
    assert record(root)["area"]["retried"] == ["tests/test_toy.py::test_it"]
    assert record(root)["area"]["passed"] == 1


def test_a_test_that_passed_the_first_time_may_fail_in_the_second(make: Make) -> None:
    body = PASSES_THE_SECOND_TIME.replace("import pathlib", "").replace("assert again", "assert not again")
    other = body.replace("test_it", "test_other").replace('before"', 'other"')
    root = make(PASSES_THE_SECOND_TIME + other)
    assert integration.main(["--area", "area"], root) == 0
    assert record(root)["area"]["retried"] == ["tests/test_toy.py::test_it", "tests/test_toy.py::test_other"]


@pytest.mark.parametrize("second", ["assert False", "pytest.skip('none left')"])
def test_what_does_not_pass_when_it_is_run_again_is_not_recorded(make: Make, second: str) -> None:
    again = f"    if again: {second}\n    assert again"
    root = make("import pytest\n" + PASSES_THE_SECOND_TIME.replace("    assert again", again))
    assert integration.main(["--area", "area"], root) == 1
    assert not (root / integration.RESULTS).exists()


def test_no_pass_is_recorded_for_files_that_changed_meanwhile(make: Make) -> None:
    change = "import pathlib\ndef test_it() -> None:\n    pathlib.Path('subject.txt').write_text('two')\n"
    root = make(change)
    assert integration.main(["--area", "area"], root) == 1
    assert not (root / integration.RESULTS).exists()
