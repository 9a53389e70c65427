"""GPUs as real drivers show them: answers of nvidia-smi that ``benchmarks/gpu_check.py`` kept.

There is no GPU here; the programs that ask are real.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from causeway import runtime
from causeway.machines import leases

SAID = Path(__file__).parents[1] / "gpu"


@pytest.fixture(params=sorted(SAID.glob("*.json")), ids=lambda path: path.stem)
def answers(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bool], dict[str, str]]:
    """``answers(in_use)``: from then on nvidia-smi is that of such a machine; what it says."""
    said = json.loads(request.param.read_text())
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(leases, "_SHARED", (tmp_path / "lock",))
    (tmp_path / "lock").mkdir()
    (tmp_path / "lock").chmod(0o1777)

    def given(in_use: bool) -> dict[str, str]:
        now = {name: said.get(f"in use: {name}", text) if in_use else text for name, text in said.items()}
        cases = "".join(f"'{name}') cat <<'END'\n{text}END\n;;\n" for name, text in now.items())
        program.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}*) echo "asked: $*" >&2; exit 2;;\nesac\n')
        program.chmod(0o755)
        return now

    return given


def test_a_gpu_is_what_the_driver_says_and_free_until_a_program_computes(answers: Any) -> None:
    answers(False)
    (gpu,) = leases.gpus()
    assert gpu.name.startswith("NVIDIA H")
    assert gpu.memory > 80_000
    assert leases.fits(gpu, {"model": gpu.name.split()[1].lower(), "memory": 80 * 10**9})
    assert not leases.fits(gpu, {"model": "a100"})
    assert leases.taken([gpu]) == {}
    answers(True)
    assert "without a lease" in leases.taken([gpu])[gpu.uuid]


def test_use_and_memory_are_read(answers: Any, tmp_path: Path) -> None:
    said = answers(True)
    usage = runtime.Usage(str(tmp_path / "usage"), 1, str(tmp_path / "no-cgroup"))
    machine, now = usage._machine(), usage._gpus()["gpus"]
    name, driver = said["--query-gpu=name,driver_version --format=csv,noheader,nounits"].strip().split(", ")
    assert machine == {"models": [name], "driver": driver}
    ((use, memory, total),) = ((each["use"], each["memory"], each["total"]) for each in now)
    assert 0 <= use <= 100
    assert 200 < memory < 2000 < total
    idle = runtime.Idle(60, 1)
    assert idle._gpus_busy() is (use >= 5)
