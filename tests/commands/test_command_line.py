"""invoke as a person meets it: a slip of the pen, and the tab key, in a lab's own repository."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from invoke.parser import Parser

from infra.commands.completion import values
from infra.tasks import namespace

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "templates/new/tasks.py", tmp_path)
    shutil.copytree(ROOT / "environments", tmp_path / "environments")
    return tmp_path


def run(lab: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "invoke", *words]
    return subprocess.run(command, cwd=lab, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["plna"], "mean plan?"),
        (["vpn.pofile", "ada"], "mean vpn.profile?"),
        (["plan", "--jsno"], "mean --json?"),
        (["plan", "--env", "resarch"], "mean research?"),
        (["--lsit"], "mean --list?"),
        (["zzzzzz"], "invoke --list"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(lab: Path, words: list[str], meant: str) -> None:
    done = run(lab, *words)
    assert done.returncode == 1
    assert meant in done.stderr
    assert "Traceback" not in done.stderr


def completed(lab: Path, line: str) -> set[str]:
    """What bash offers, by invoke's own script, when the tab key is pressed at the end of ``line``."""
    script = run(lab, "--print-completion-script", "bash").stdout
    words = line.split(" ")
    array = " ".join(map(shlex.quote, words))
    asked = f"{script}\nCOMP_WORDS=({array}); COMP_CWORD={len(words) - 1}\n"
    asked += f"_complete_invoke invoke {shlex.quote(words[-1])}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "-c", asked], cwd=lab, env={"PATH": f"{BIN}:/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_bash_completes_what_the_spec_names(lab: Path) -> None:
    assert completed(lab, "invoke plan --env ") >= {"local", "minimal", "research"}
    assert completed(lab, "invoke vpn.push --env research --site rack") == {"rack-a", "rack-b"}
    assert completed(lab, "invoke vpn.pro") == {"vpn.profile", "vpn.profiles"}
    assert completed(lab, "invoke plan --js") == {"--json"}
    # Also where the spec is not sound.
    spec = lab / "environments/local.yaml"
    spec.write_text(spec.read_text() + "oops: 1\n")
    assert "us-west-2" in completed(lab, "invoke plan --only us")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("plan -e mini", {"minimal"}),
        ("plan --env re", {"research"}),
        ("roll ", {"cpu", "gpu"}),
        ("vpn.profile a", {"ada", "alan"}),
        ("plan --env research --only us-e", {"us-east-1"}),
        ("roll --env research --region us-e", {"us-east-1"}),
        ("roll --env research --pool gpu-p", {"gpu-p2", "gpu-p3", "gpu-p4d", "gpu-p5"}),
        ("roll --env research gpu-g", {"gpu-g5"}),
        ("pool.drain -e minimal ", {"cpu"}),
        ("pool.drain -e minimal cpu ", set()),
        ("bake --image c", {"cpu"}),
        ("vpn.renew --user ad", {"ada"}),
        ("kubeconfig.write -e research al", {"alan"}),
        ("converge --env research --nodes gate", {"gateway-a", "gateway-b"}),
        ("cluster.drain gate", {"gateway"}),
        ("cluster.drain --env research --force sto", {"storage-a"}),
        ("vpn.profile --out ad", set()),
        ("plan --js", set()),
    ],
)
def test_values_are_offered_where_they_are_expected(
    lab: Path, monkeypatch: pytest.MonkeyPatch, line: str, offered: set[str]
) -> None:
    monkeypatch.chdir(lab)
    found = values(line.split(), Parser(contexts=namespace.to_contexts()).contexts)
    assert {word for word in found if word.startswith(line.rpartition(" ")[2])} == offered
