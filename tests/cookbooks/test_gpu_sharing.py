"""gpu: GPUs split into instances, and what sick machines leave for Node Feature Discovery.

The programs are real; `nvidia-smi` is a small one with GPUs of its own, which it keeps in a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cookbooks.kitchen import COOKBOOKS, Ask

GPU = COOKBOOKS / "gpu"

SMI = """
import json, os, sys
from pathlib import Path

file = Path(os.environ["GPUS"])
gpus = json.loads(file.read_text())
asked = sys.argv[1:]
with file.with_name("smi.log").open("a") as log:
    log.write(" ".join(asked) + "\\n")


def option(name):
    return asked[asked.index(name) + 1]


def end(text, code=6):
    print(text)
    sys.exit(code)


if asked[0].startswith("--query-gpu=index,mig.mode"):
    for index, gpu in gpus.items():
        print(f"{index}, {gpu['now']}, {gpu['then']}")
elif asked[:2] == ["mig", "-lgip"]:
    gpu = gpus[option("-i")]
    print("| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |")
    for number, (size, total) in enumerate(gpu["room"].items()):
        for name, room in ((size, total), (size + "+me", 1)):
            profile = f"|   {option('-i')}  MIG {name:<17}{19 - number}     {room}/{room}"
            print(f"{profile}        9.50       No     14     0     0   |")
            print("|                                                 1     0     0   |")
elif asked[:2] == ["mig", "-lgi"]:
    gpu = gpus[option("-i")]
    if not gpu["has"]:
        end("No GPU instances found: Not Found")
    for number, size in enumerate(gpu["has"]):
        print(f"|   {option('-i')}  MIG {size:<17} 19       {number + 7}          {number}:1     |")
elif asked[0] == "mig" and "-cgi" in asked:
    gpu = gpus[option("-i")]
    assert asked[-1] == "-C" and not gpu["has"] and gpu["now"] == "Enabled", gpu
    gpu["has"] = option("-cgi").split(",")
elif asked[:2] in (["mig", "-dci"], ["mig", "-dgi"]):
    gpu = gpus[option("-i")]
    if gpu.get("used"):
        end("Unable to destroy compute instance: In use by another client", 19)
    if asked[1] == "-dgi":
        gpu["has"] = []
elif "-mig" in asked:
    gpu = gpus[option("-i")]
    gpu["then"] = "Enabled" if option("-mig") == "1" else "Disabled"
    if not gpu["resets"]:
        gpu["now"] = gpu["then"]
elif asked[0] == "--gpu-reset":
    gpu = gpus[option("-i")]
    if gpu["resets"] == "never":
        end("Resetting GPU is not supported")
    gpu["now"] = gpu["then"]
else:
    sys.exit(f"what is {asked}?")
file.write_text(json.dumps(gpus))
"""

A100 = {"1g.5gb": 7, "3g.20gb": 2}


@dataclass
class Box:
    """A machine with GPUs that can be split."""

    root: Path

    def gpus(self, *gpus: dict[str, Any]) -> None:
        whole = {"now": "Disabled", "then": "Disabled", "room": A100, "has": [], "resets": ""}
        self.file.write_text(json.dumps({str(i): {**whole, **gpu} for i, gpu in enumerate(gpus)}))

    @property
    def file(self) -> Path:
        return self.root / "gpus.json"

    def has(self) -> list[list[str]]:
        return [gpu["has"] for gpu in json.loads(self.file.read_text()).values()]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        smi = self.root / "nvidia-smi"
        (self.root / "smi.py").write_text(SMI)
        smi.write_text(f'#!/bin/sh\nexec {sys.executable} {self.root}/smi.py "$@"\n')
        smi.chmod(0o755)
        self.log.unlink(missing_ok=True)
        return subprocess.run(
            [sys.executable, "-B", "-W", "error", GPU / "files" / "causeway-gpu-mig", *arguments],
            env={
                **os.environ,
                "NVIDIA_SMI": str(smi),
                "GPUS": str(self.file),
                "REBOOT_REQUIRED": str(self.reboot),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    @property
    def log(self) -> Path:
        return self.root / "smi.log"

    @property
    def reboot(self) -> Path:
        return self.root / "reboot-required"

    def changed(self) -> bool:
        """Whether the last run asked for more than to be told."""
        asked = self.log.read_text().splitlines()
        return any(not line.startswith(("--query", "mig -lgi")) for line in asked)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


SPLIT = {"now": "Enabled", "then": "Enabled", "has": ["1g.5gb"] * 7}
SMALL, LARGE, WHOLE = ["1g.5gb"] * 7, ["3g.20gb"] * 2, list[str]()


@pytest.mark.parametrize(
    ("gpus", "size", "expected"),
    [
        ([{}, {}], "1g.5gb", [SMALL, SMALL]),
        ([SPLIT], "3g.20gb", [LARGE]),
        ([SPLIT, {}], "off", [WHOLE, WHOLE]),
        ([{"resets": "yes"}], "1g.5gb", [SMALL]),
    ],
    ids=["split", "split otherwise", "made whole", "reset for the mode"],
)
def test_gpus_are_changed_once(
    box: Box, gpus: list[dict[str, Any]], size: str, expected: list[list[str]]
) -> None:
    box.gpus(*gpus)
    change = ["off"] if size == "off" else ["apply", size]
    assert box.run("check", size).returncode == 1
    assert box.run(*change).returncode == 0
    assert box.has() == expected
    assert not box.reboot.exists()
    assert box.run("check", size).returncode == 0
    assert box.run(*change).returncode == 0
    assert not box.changed()


def test_gpus_without_the_mode_are_whole(box: Box) -> None:
    box.gpus({"now": "[N/A]", "then": "[N/A]"})
    assert box.run("check", "off").returncode == 0
    assert box.run("off").returncode == 0
    assert not box.changed()


@pytest.mark.parametrize(
    ("gpu", "size", "facts", "reboot"),
    [
        ({**SPLIT, "used": True}, "3g.20gb", "In use", False),
        ({"resets": "never"}, "1g.5gb", "reboot", True),
        ({}, "1g.10gb", "1g.10gb", False),
    ],
    ids=["used", "needs a reboot", "a size that it does not have"],
)
def test_a_gpu_that_can_not_be_split_stays_as_it_is(
    box: Box, gpu: dict[str, Any], size: str, facts: str, reboot: bool
) -> None:
    box.gpus(gpu)
    done = box.run("apply", size)
    assert done.returncode == 1
    assert facts in done.stderr
    assert "Traceback" not in done.stderr
    assert box.reboot.exists() == reboot
    assert box.has() == [gpu.get("has", [])]


def test_what_a_sick_machine_leaves_is_what_the_cluster_looks_for(ask: Ask) -> None:
    """The feature's name stands in the rule, the folder in the agent's and in the check's own settings."""
    from infra.catalogue.labels import GPU_SICK
    from infra.render.kubernetes import gpu

    file = Path(ask("gpu/health_settings", "Causeway::HealthSettings::FEATURES"))
    assert str(file.parent) == gpu.FEATURES
    assert f'FEATURE = "{GPU_SICK}"' in (GPU / "files/gpu_health/features.py").read_text()
