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


@pytest.mark.parametrize("module", ["here", "machines", "leases"])
def test_what_has_no_cluster_needs_no_client_of_one(module: str) -> None:
    code = f"import sys; import causeway.commands.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"urllib3", "causeway.cluster.connection", "botocore"} & {*done.stdout.split()} == set()


def test_every_verb_has_an_example(causeway: Causeway) -> None:
    from causeway.cli import cli

    for name in cli.commands:
        assert f"causeway {name}" in causeway(name, "--help").out.partition("Options:")[0].partition("\n")[2]


@pytest.mark.parametrize("given", ["lr", "lr=", "lr=1,,2", "lr=3..1", "lr=0..9999999999999", "seed=0..1000"])
def test_values_that_are_none_or_too_many_are_refused(causeway: Causeway, given: str) -> None:
    assert causeway("run", "--each", given, "--", "true", "{lr}").code == 2


def test_combinations_are_counted_before_anything_is_made(causeway: Causeway) -> None:
    done = causeway("run", "--each", "lr=0..99", "--each", "seed=0..99", "--", "true")
    assert (done.code, "10000" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "where"),
    [
        (("run", "--local", "job.yaml"), 2, "job.yaml:2"),
        (("run", "--local", "--gpus", "many", "job.yaml"), 2, None),
        (("why", "never-1"), 1, None),
        (("doctor", "--group"), 2, None),
    ],
)
def test_with_json_an_error_is_json_and_the_exit_code_what_it_is(
    causeway: Causeway, folder: Path, words: tuple[str, ...], code: int, where: str | None
) -> None:
    (folder / "job.yaml").write_text("run: x\nnode: 2\n")
    done = causeway(*words[:1], "--json", *words[1:])
    said = json.loads(done.out)["error"]
    assert (done.code, said["code"]) == (code, code)
    assert said["message"] in done.err
    assert [each["where"] for each in said["problems"]] == ([where] if where else [])
    assert all({*each} == {"where", "field", "what", "hint"} for each in said["problems"])
    plain = causeway(*words)
    assert (plain.code, plain.out) == (code, "")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("run", "--local", "python", "train.py"), "causeway run --local -- python train.py"),
        (
            ("run", "--gpus", "2", "python", "a.py", "--lr", "1"),
            "causeway run --gpus 2 -- python a.py --lr 1",
        ),
        (("shell", "resnet-3", "nvidia-smi", "-q"), "causeway shell resnet-3 -- nvidia-smi -q"),
        (("run", "job.yaml", "--gpu", "2"), None),
        (("run", "--local", "--bogus"), None),
    ],
)
def test_a_command_without_dashes_is_shown_with_them(
    causeway: Causeway, words: tuple[str, ...], meant: str | None
) -> None:
    done = causeway(*words)
    assert (done.code, " -- " in done.err) == (2, meant is not None)
    assert meant is None or meant in done.err


@pytest.mark.parametrize("given", ["--detach", "--dry-run", "--each=lr=1,2"])
def test_an_option_that_a_local_run_lacks_is_named(causeway: Causeway, given: str) -> None:
    done = causeway("run", "--local", given, "--", "true", "{lr}")
    others = {"--detach", "--dry-run", "--each"} - {given.partition("=")[0]}
    assert (done.code, given.partition("=")[0] in done.err) == (2, True)
    assert not any(f"{each} " in done.err for each in others)


def test_json_after_the_dashes_is_the_programs(causeway: Causeway) -> None:
    assert causeway("run", "--gpus", "many", "--", "true", "--json").out == ""


def test_the_list_of_commands_has_whole_sentences(causeway: Causeway) -> None:
    from causeway.cli import cli

    listed = causeway("--help").out.partition("Commands:")[2]
    assert "..." not in listed
    for name, command in cli.commands.items():
        first = " ".join((command.help or "").split("\n\n")[0].split()).partition(". ")[0]
        assert first.rstrip(".") in " ".join(listed.split()), name


def test_help_has_commands_and_all_fields_of_a_job_file(causeway: Causeway) -> None:
    from causeway.reference import json_schema

    assert causeway("help", "sweep", "show").out == causeway("sweep", "show", "--help").out
    assert causeway("help", "walk").code == 2
    page = causeway("help", "job").out
    assert [field for field in json_schema()["properties"] if f"  {field}  (" not in page] == []
    assert "```" not in page


def completed(
    command: list[str], folder: Path, environment: Mapping[str, str], words: str, **more: str
) -> list[str]:
    """What bash would be told after these words."""
    asked = {"_CAUSEWAY_COMPLETE": "bash_complete", "COMP_WORDS": words, **more}
    count = {"COMP_CWORD": str(len(words.split()) - 1)}
    env = {**environment, **asked, **count}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_the_shell_completes_names_of_runs_and_files(
    command: list[str], folder: Path, environment: Mapping[str, str], causeway: Causeway
) -> None:
    for name in ("resnet", "tuned-s1"):
        assert causeway("run", "--local", "--name", name, "--", "true").code == 0
    search = Path(environment["HOME"], ".local/share/causeway/sweeps/tuned-s1")
    search.mkdir(parents=True)
    (search / "sweep.json").write_text("{}")
    away = {"KUBECONFIG": str(folder / "none")}
    for words, more, found in (
        ("causeway why re", {}, ["plain,resnet-1"]),
        ("causeway why x", {}, []),
        ("causeway run jo", {}, ["file,jo"]),
        ("causeway why re", away, []),
        ("causeway why --local re", away, ["plain,resnet-1"]),
        ("causeway why tu", {}, []),  # trials, once their search is named
        ("causeway why tuned-s1-", {}, ["plain,tuned-s1-1"]),
        ("causeway sweep show tu", {}, ["plain,tuned-s1"]),
        ("causeway help jo", {}, ["plain,job"]),
    ):
        assert completed(command, folder, environment, words, **more) == found


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


@pytest.mark.parametrize(
    ("first", "says", "says_here"),
    [
        ({"exit": 137, "reason": "OOMKilled"}, "memory:", "memory:"),
        ({"exit": 78, "reason": "ModuleNotFoundError: No module named 'einops'"}, "image:", "python:"),
        (
            {"exit": 78, "reason": "No module named 'torch' (torch.distributed.run)"},
            "image:",
            "pip install torch",
        ),
        (
            {"exit": 78, "reason": "the code is not what was submitted: 1, not 2"},
            "causeway run",
            "causeway run",
        ),
        ({"exit": 78, "reason": "idle for 900 s"}, "", ""),
        ({"exit": 1, "reason": "Error"}, "", ""),
    ],
)
def test_a_failure_comes_with_its_own_cure(first: dict[str, object], says: str, says_here: str) -> None:
    from io import StringIO

    from rich.console import Console

    from causeway.commands.failure import show_failure

    for here, said in ((False, says), (True, says_here)):
        out = StringIO()
        show_failure(
            Console(file=out, width=200), {"role": "worker", "rank": 0, "lines": [], **first}, here=here
        )
        *_, last = out.getvalue().strip().splitlines()
        assert (said in last) if said else last.strip() in (str(first["reason"]), out.getvalue().strip())
        assert not (here and "image:" in last)
