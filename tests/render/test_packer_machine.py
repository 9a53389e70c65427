"""What runs on a build instance and at an image's first boot: the checks' runner, the node that is made."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PACKER = Path(__file__).parents[2] / "packer"
FACTS = {
    "cluster": "research", "environment": "research", "domain": "research.internal", "site": "us-west-2",
    "role": "gpu-worker", "pool": "gpu-p3", "labels": {"pool": "gpu-p3"}, "taints": [{"key": "gpu"}],
}  # fmt: skip


def module(path: Path, name: str) -> ModuleType:
    loader = SourceFileLoader(name, str(path))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    made = module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        loader.exec_module(made)
    finally:
        sys.dont_write_bytecode = before
    return made


def run(folder: Path, checks: dict[str, Any], variables: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    (folder / "run.py").write_text((PACKER / "checks" / "run.py").read_text())
    (folder / "some.json").write_text(json.dumps(checks))
    (folder / "vars.json").write_text(json.dumps({"checks": ["some"], **variables}))
    command = [sys.executable, str(folder / "run.py"), "--vars", str(folder / "vars.json")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def command(text: str, *stdout: str, **more: object) -> dict[str, Any]:
    return {"command": {"x": {"exec": text, "exit-status": 0, "stdout": list(stdout), **more}}}


@pytest.mark.parametrize(
    ("checks", "holds"),
    [
        (command("echo v{{.Vars.version}}.3", "/^v1\\.36\\./"), True),
        (command("echo v1.35.3", "v{{.Vars.version}}"), False),
        (command("echo bad; echo good", "good", "!bad"), False),
        (command("true", "!/./"), True),
        (command("exit 3"), False),
        (command("sleep 30", timeout=100), False),
        ({"file": {"/dev/null": {"exists": True, "mode": "0666"}}}, True),
        ({"file": {"/nowhere": {"exists": True}}}, False),
        ({"file": {"/nowhere": {"exists": False}}}, True),
        ({"file": {"/etc/passwd": {"exists": True, "size": 0}}}, False),
        ({"file": {"/etc/passwd": {"exists": True, "contents": ["/^root:/", "!{{.Vars.version}}"]}}}, True),
    ],
)
def test_a_check_holds_or_not(tmp_path: Path, checks: dict[str, Any], holds: bool) -> None:
    said = run(tmp_path, checks, {"version": "1.36"})
    assert said.returncode == (0 if holds else 1), said.stdout + said.stderr
    assert said.stdout.startswith("ok: " if holds else "not ok: ")
    assert ("wanted" in said.stdout) is not holds


@pytest.mark.parametrize("checks", [{"port": {"tcp:22": {}}}, {"command": {"{{.Vars.nothing}}": {}}}])
def test_checks_that_can_not_be_read_are_not_passed(tmp_path: Path, checks: dict[str, Any]) -> None:
    assert run(tmp_path, checks, {}).returncode == 2


def test_a_pools_machine_becomes_a_node() -> None:
    boot = module(PACKER / "files/usr/local/lib/causeway/boot", "boot")
    baked = {"normal": {"causeway": {"baking": True}, "gpu": {"driver": 580}}}
    node = boot.node(FACTS, "ip-10-1-2-3.ec2.internal", baked)
    assert node["name"] == "ip-10-1-2-3"
    assert node["run_list"] == ["role[gpu-worker]"]
    assert node["chef_environment"] == "research"
    assert node["normal"]["gpu"] == {"driver": 580}, "it has the driver that was baked"
    assert node["normal"]["kubernetes"] == {"labels": {"pool": "gpu-p3"}, "taints": [{"key": "gpu"}]}
    assert node["normal"]["causeway"]["baking"] is False
    assert node["normal"]["causeway"]["first_boot"] is True, "nothing is upgraded, no archive is asked"
    assert node["normal"]["causeway"]["fqdn"] == "ip-10-1-2-3.research.internal"
    assert "labels" not in node["normal"]["causeway"]


def test_a_machine_with_a_name_keeps_it() -> None:
    boot = module(PACKER / "files/usr/local/lib/causeway/boot", "boot")
    node = boot.node({**FACTS, "role": "control-plane", "hostname": "master-1"}, "ip-10-1-2-3", {})
    assert (node["name"], node["run_list"]) == ("master-1", ["role[control-plane]"])
    with pytest.raises(ValueError, match="role"):
        boot.node({**FACTS, "role": ""}, "x", {})
