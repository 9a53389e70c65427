"""The plugin that tells node-problem-detector what a machine's own check found, run as it runs in a pod."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from infra.catalogue.labels import GPU_SICK_CONDITION
from infra.render.templating import TEMPLATES

FOLDER = TEMPLATES / "kubernetes" / "static" / "problems"
PLUGIN = FOLDER / "gpu-sick"


def ask(report: Path) -> tuple[int, str]:
    ran = subprocess.run([PLUGIN, report], capture_output=True, text=True, check=False, timeout=30)
    assert ran.stderr == ""
    return ran.returncode, ran.stdout.strip()


def report(path: Path, *, healthy: bool, why: str, gpus: bool) -> Path:
    """As cookbooks/gpu/files/gpu_health/report.py writes it."""
    gpu = {"index": 0, "name": "Tesla V100", "uuid": "GPU-0", "healthy": gpus, "reasons": []}
    told = {"checked": "2026-11-21T15:12:44Z", "healthy": healthy, "reasons": [], "why": why, "gpus": [gpu]}
    path.write_text(json.dumps(told, indent=2) + "\n")
    return path


def test_the_machine_s_verdict_counts_and_not_a_gpu_s(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert ask(report(file, healthy=True, why="", gpus=False))[0] == 0
    assert ask(report(file, healthy=False, why="GPU 1: Xid 79", gpus=True)) == (1, "GPU 1: Xid 79")


def test_quotes_in_the_reason(tmp_path: Path) -> None:
    code, said = ask(report(tmp_path / "report.json", healthy=False, why='a "b" \\ c', gpus=True))
    assert code == 1
    assert said == r"a \"b\" \\ c"


def test_no_report_is_no_problem(tmp_path: Path) -> None:
    assert ask(tmp_path / "none.json")[0] == 0


@pytest.mark.parametrize("text", ["", "{}", '{"healthy": nul'])
def test_a_report_that_says_nothing_is_unknown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "report.json"
    file.write_text(text)
    assert ask(file)[0] == 2


def test_rules_name_what_there_is() -> None:
    """Conditions that rules set are declared, and patterns are regular expressions of RE2, near enough."""
    for file in FOLDER.glob("*.json"):
        rules = json.loads(file.read_text())
        declared = {each["type"] for each in rules["conditions"]}
        for rule in rules["rules"]:
            assert rule["type"] in ("temporary", "permanent")
            assert rule.get("condition") in {*declared, None}
            assert (rule["type"] == "permanent") == ("condition" in rule)
            re.compile(rule.get("pattern", ""))
    told = json.loads((FOLDER / "gpu.json").read_text())
    assert [each["type"] for each in told["conditions"]] == [GPU_SICK_CONDITION]
    assert told["rules"][0]["path"] == "/custom-config/gpu-sick"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:1kB",
            "OutOfMemory",
        ),
        ("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.", "Xid"),
        ("EXT4-fs (sda1): Remounting filesystem read-only", "FilesystemIsReadOnly"),
        ("nfs: server storage-a.research.internal not responding, still trying", "NfsServerSilent"),
        ("task python:4242 blocked for more than 120 seconds.", "TaskHung"),
    ],
)
def test_the_kernel_s_words(line: str, reason: str) -> None:
    rules = json.loads((FOLDER / "kernel.json").read_text())["rules"]
    assert reason in [rule["reason"] for rule in rules if re.search(rule["pattern"], line)]
