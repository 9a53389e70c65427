"""The command line itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from client.process import Causeway


def test_help_imports_nothing_that_takes_long() -> None:
    code = (
        "import sys; from causeway.cli import cli\n"
        "try: cli(['--help'])\n"
        "except SystemExit: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pydantic", "rich", "yaml", "pathspec", "botocore", "kubernetes", "urllib3"}
    assert heavy & {*done.stdout.rpartition("\n")[0].split("\n")[-1].split()} == set()


def test_a_list_of_runs_needs_no_models_and_no_library_of_a_cloud() -> None:
    code = "import sys; import causeway.commands.watching; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"pydantic", "botocore", "kubernetes", "jinja2"} & {*done.stdout.split()} == set()


def test_every_verb_has_an_example(causeway: Causeway) -> None:
    from causeway.cli import cli

    for name in cli.commands:
        assert f"causeway {name}" in causeway(name, "--help").out.partition("Options:")[0].partition("\n")[2]


def test_wrong_usage_is_exit_code_2(causeway: Causeway) -> None:
    assert causeway("walk").code == 2
    assert causeway("run", "--gpus", "many", "--", "true").code == 2


@pytest.mark.parametrize("given", ["lr", "lr=", "lr=1,,2", "lr=3..1", "lr=0..9999999999999", "seed=0..1000"])
def test_values_that_are_none_or_too_many_are_refused(causeway: Causeway, given: str) -> None:
    done = causeway("run", "--each", given, "--", "true", "{lr}")
    assert done.code == 2
    assert "--each" in done.err


def test_combinations_are_counted_before_anything_is_made(causeway: Causeway) -> None:
    done = causeway("run", "--each", "lr=0..99", "--each", "seed=0..99", "--", "true")
    assert done.code == 2
    assert "10000 runs" in done.err


def test_runs_of_machines_and_of_the_cluster_are_not_mixed_in_one_command(
    causeway: Causeway, environment: Mapping[str, str]
) -> None:
    known = Path(environment["HOME"], ".local/share/causeway/on/train-on-1.json")
    known.parent.mkdir(parents=True)
    known.write_text(json.dumps({"hosts": ["titan-01"], "at": 0}))
    for verb in ("stop", "resume"):
        for runs in (["train-on-1", "train-7"], ["train-7", "train-on-1"]):
            done = causeway(verb, *runs)
            assert done.code == 2
            assert "train-on-1" in done.err
