"""The command line as a person uses it: a process, its output, its exit code."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from invoke.collection import Collection
from render.tools import needs

from infra.drive.workspace import locked

ROOT = Path(__file__).parents[1]


def invoke(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "invoke", "--search-root", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of somebody's own, with the shipped specs and no lock files."""
    shutil.copytree(ROOT / "environments", tmp_path / "environments")
    for lock in (tmp_path / "environments").glob("*.lock.yaml"):
        lock.unlink()
    return tmp_path


@pytest.mark.parametrize(("told", "kept"), [("", True), ("1", False)])
def test_what_is_compiled_is_kept_for_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, kept: bool
) -> None:
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", told)
    assert invoke("validate", "--env", "minimal").returncode == 0
    compiled = {file.name.partition(".")[0] for file in tmp_path.rglob("infra/load/*.pyc")}
    assert ("structure" in compiled) is kept


def test_a_sound_spec_and_one_that_does_not_exist() -> None:
    result = invoke("validate", "--env", "research", "--json")
    assert (result.returncode, json.loads(result.stdout)) == (0, []), result.stderr
    result = invoke("validate", "--env", "reserach")
    assert result.returncode == 1
    assert "research?" in result.stderr


def test_every_problem_at_once_and_nothing_done(project: Path) -> None:
    spec = project / "environments" / "minimal.yaml"
    text = spec.read_text(encoding="utf-8")
    spec.write_text(
        text.replace("m6i.xlarge", "m6i.xlagre").replace("max: 4", "min: 9, max: 4"), encoding="utf-8"
    )
    result = invoke("render", "--env", "minimal", folder=project)
    assert result.returncode == 1
    assert "environments/minimal.yaml:10: pools.cpu.instance_types[0]: " in result.stderr
    assert "m6i.xlarge?" in result.stderr
    assert "2 errors" in result.stderr
    assert not (project / "build").exists()
    assert not (project / "environments" / "minimal.lock.yaml").exists()


def test_addresses_shows_every_block_under_its_owner() -> None:
    result = invoke("addresses", "--env", "local")
    assert result.returncode == 0, result.stderr
    lines = [line.split()[:2] for line in result.stdout.splitlines()]
    assert ["supernet", "10.0.0.0/8"] in lines
    assert ["sites/lab", "10.200.0.0/22"] in lines
    assert "private-us-west-2a" in [name for name, _ in lines]


def test_gpus_are_listed_by_names_that_a_spec_may_use(project: Path) -> None:
    """Never by one that several sizes of memory share, which is refused (SITE039)."""
    listed = json.loads(invoke("catalogue", "--gpus", "--json").stdout)
    names = {name: gpu["memory_mib"] for gpu in listed for name in (gpu["model"], *gpu["also"])}
    assert names["v100-16gb"] == 16384
    assert names["a100-80gb"] == 81920
    assert not {"a100", "v100"} & {*names}
    nodes = {
        f"gpu-{at}": {"address": f"10.200.0.{at + 10}", "gpus": {"model": name, "count": 1}}
        for at, name in enumerate(names)
    }
    spec = {
        "version": 1,
        "name": "gpus",
        "domain": "gpus.internal",
        "sites": {"rack": {"kind": "physical", "cidr": "10.200.0.0/22", "nodes": nodes}},
    }
    (project / "environments/gpus.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    found = json.loads(invoke("validate", "--env", "gpus", "--json", folder=project).stdout)
    assert [problem for problem in found if problem["path"].endswith(".gpus.model")] == []
    table = invoke("catalogue", "--gpus").stdout.splitlines()
    assert {line.split()[0] for line in table[1:]} == {gpu["model"] for gpu in listed}


def test_the_policies_of_an_environment_are_written(project: Path) -> None:
    done = invoke("iam", "--env", "minimal", "--json", folder=project)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert Path(told["folder"]) == Path("build/minimal/iam")
    for policy in told["policies"]:
        statements = json.loads((project / told["folder"] / policy["file"]).read_text())["Statement"]
        assert [each["Sid"] for each in statements] == policy["statements"]
    assert {"plan.json", "apply.json", "bake.json"} & {policy["file"] for policy in told["policies"]}


def test_render_writes_what_is_new_and_keeps_what_must_not_move(project: Path) -> None:
    first = invoke("render", "--env", "minimal", folder=project)
    assert first.returncode == 0, first.stderr
    assert "minimal.lock.yaml" in first.stderr
    assert (project / "build" / "minimal" / "terraform" / "main.tf").is_file()
    again = invoke("render", "--env", "minimal", "--json", folder=project)
    told = json.loads(again.stdout)
    assert (told["added"], told["changed"], told["removed"]) == (0, 0, 0)
    assert again.stderr == ""


def test_each_value_of_a_spec_and_where_it_comes_from() -> None:
    result = invoke("spec", "--resolved", "--env", "research")
    lines = dict(line.rsplit("  # ", 1) for line in result.stdout.splitlines())
    told = {line.strip(): origin for line, origin in lines.items()}
    assert told["kubernetes.version: 1.36"].startswith("environments/base.yaml:")
    assert told["kubernetes.control_plane.count: 3"].startswith("environments/research.yaml:")
    assert told["network.routing: bgp"] == "default"


def test_a_merged_spec_is_a_spec(project: Path) -> None:
    merged = invoke("spec", "--env", "local", folder=project).stdout
    lines = [line for line in merged.splitlines() if not line.startswith("extends:")]
    (project / "environments" / "merged.yaml").write_text("\n".join(lines), encoding="utf-8")
    assert invoke("validate", "--env", "merged", folder=project).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("diff",), "never applied"),
        (("outputs",), "invoke plan --env minimal"),
        (("bootstrap",), "environments/minimal.yaml"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_comes_too_early_says_what_to_do(project: Path, arguments: tuple[str, ...], said: str) -> None:
    result = invoke(*arguments, "--env", "minimal", folder=project)
    assert result.returncode == 1
    assert said in result.stderr


def test_nothing_is_embedded_until_it_is_asked_for(project: Path) -> None:
    result = invoke("local.status", "--json", folder=project)
    assert result.returncode == 1
    assert json.loads(result.stdout) == {"running": False}


def test_real_resources_are_not_taken_for_embedded_ones(project: Path) -> None:
    """`local.reset` puts a state aside: one that speaks of a real cluster must stay where it is."""
    state = project / "build" / "minimal" / "state" / "terraform.tfstate"
    state.parent.mkdir(parents=True)
    state.write_text("{}", encoding="utf-8")
    for task in ("local.reset", "local.down", "local.up", "local.status"):
        result = invoke(task, "--env", "minimal", folder=project)
        assert result.returncode == 1
    assert state.exists()
    assert invoke("local.reset", "--env", "minimal", "--rehearse", folder=project).returncode == 0
    assert state.exists()


def test_a_reset_waits_for_no_run_and_disturbs_none(project: Path) -> None:
    build = project / "build" / "local"
    with locked(build):
        result = invoke("local.reset", folder=project)
    assert result.returncode == 1
    assert "another run" in result.stderr


@pytest.mark.parametrize("task", ["render", "topology"])
def test_a_build_folder_that_cannot_be_written(project: Path, task: str) -> None:
    (project / "build").touch()
    result = invoke(task, "--env", "minimal", folder=project)
    assert result.returncode == 1
    assert "error: " in result.stderr
    assert f"{project / 'build' / 'minimal'}" in result.stderr


def test_output_that_nobody_reads_to_its_end(project: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m invoke --search-root {ROOT} addresses --env research | head -n 1",
        shell=True, capture_output=True, text=True, check=True, cwd=project,
    )  # fmt: skip
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


def test_messages_name_only_tasks_that_exist() -> None:
    import tasks

    said = {
        (path, name)
        for path in [*(ROOT / "infra").rglob("*.py"), ROOT / "tasks.py"]
        for name in re.findall(r"(?<!from )\binvoke ([a-z]+(?:\.[a-z-]+)?)", path.read_text(encoding="utf-8"))
    }
    assert said
    known = {*tasks.namespace.task_names, *_with_a_default(tasks.namespace)}
    assert {(path, name) for path, name in said if name not in known} == set()


def _with_a_default(namespace: Collection) -> dict[str, str]:
    """``images`` → ``images.list``: collections that are tasks by themselves."""
    return {
        name: f"{name}.{collection.default}"
        for name, collection in namespace.collections.items()
        if collection.default
    }


@needs("graphviz", "dot")
def test_the_picture_of_a_cluster(project: Path) -> None:
    result = invoke("topology", "--env", "minimal", folder=project)
    assert result.returncode == 0, result.stderr
    page = (project / "build" / "minimal" / "topology.html").read_text(encoding="utf-8")
    assert 'data-id="us-west-2"' in page
    assert (project / "build" / "minimal" / "topology.svg").is_file()


def test_without_graphviz_the_graph_is_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(project))
    result = invoke("topology", "--env", "minimal", folder=project)
    assert result.returncode == 1
    assert "apt install graphviz" in result.stderr
    assert "us-west-2" in (project / "build" / "minimal" / "topology.dot").read_text(encoding="utf-8")


def test_the_list_of_tasks_needs_no_heavy_library() -> None:
    heavy = ["pydantic", "jinja2", "boto3", "rich", "cryptography", "infra.schema"]
    program = f"import sys, tasks; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_every_task_has_an_example() -> None:
    import tasks

    short = {task: name for name, task in _with_a_default(tasks.namespace).items()}
    for name in tasks.namespace.task_names:
        doc = tasks.namespace[name].__doc__ or ""
        assert f"Example: invoke {short.get(name, name)}" in doc, name


def test_each_task_has_the_options_of_the_function_that_does_its_work() -> None:
    """With a cluster to work on, where it may be asked for one; the function's defaults are never used."""
    import tasks as _  # noqa: F401
    from infra.commands import declaring

    assert len(declaring.targets) > 50
    for name, (target, parameters) in declaring.targets.items():
        own = dict(inspect.signature(declaring.find(target)).parameters)
        if "env" in parameters:
            subject = next(iter(own))
            assert own.pop(subject).annotation in ("Environment", "Project"), name
        assert {*parameters.values()} - {"env", "rehearse"} == {*own}, name


def test_options_that_may_be_repeated_are_lists() -> None:
    """An option of another kind would be a string, and be read letter by letter."""
    import tasks

    for name in tasks.namespace.task_names:
        for argument in tasks.namespace[name].get_arguments():
            if argument.names[0] in tasks.namespace[name].iterable:
                assert argument.kind is list, (name, argument)
