"""The command line itself."""

from __future__ import annotations

import subprocess
import sys

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


def test_every_verb_has_an_example(causeway: Causeway) -> None:
    from causeway.cli import cli

    for name in cli.commands:
        assert f"causeway {name}" in causeway(name, "--help").out.partition("Options:")[0].partition("\n")[2]


def test_wrong_usage_is_exit_code_2(causeway: Causeway) -> None:
    assert causeway("walk").code == 2
    assert causeway("run", "--gpus", "many", "--", "true").code == 2
