"""A machine with GPUs, as the programs of the gpu cookbook see it: `nvidia-smi`, `journalctl`, `kubectl` and
`dcgmi` are small programs that answer as those do.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cookbooks.kitchen import COOKBOOKS

GPU = COOKBOOKS / "gpu"
SAID = Path(__file__).parents[1] / "gpu"
XIDS = [46, 48, 62, 64, 74, 79, 95]


@dataclass
class Machine:
    """A machine with GPUs, as the check sees it."""

    root: Path
    settings: dict[str, Any]

    def gpus(self, *faults: Mapping[str, str]) -> None:
        """A GPU each, on the bus and in nvidia-smi's answer; ``busy`` has the processes that use them."""
        self.bus(len(faults))
        (self.root / "nvidia-smi.said").write_text(xml(*faults))
        self.program("nvidia-smi", NVIDIA_SMI.format(root=self.root))

    def bus(self, count: int) -> None:
        """NVIDIA's GPUs on the PCI bus, and one of somebody else."""
        for number in range(9):
            device = self.root / "pci" / place(number)
            if number < count:
                device.mkdir(parents=True, exist_ok=True)
                (device / "vendor").write_text("0x10de\n")
                (device / "class").write_text("0x030200\n")
            elif device.exists():
                shutil.rmtree(device)
        other = self.root / "pci" / "0000:00:01.0"
        other.mkdir(parents=True, exist_ok=True)
        (other / "vendor").write_text("0x8086\n")
        (other / "class").write_text("0x030000\n")

    def says(self, command: str, text: str, code: int = 0) -> None:
        """From now on a command prints that text and ends with that code."""
        (self.root / f"{command}.said").write_text(text)
        self.program(command, f"cat {self.root}/{command}.said; exit {code}")

    def program(self, command: str, script: str) -> None:
        path = self.root / command
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def logs(self, *lines: str) -> None:
        """The kernel's log has these lines, written a minute ago."""
        at = int((time.time() - 60) * 1_000_000)
        entries = [json.dumps({"MESSAGE": line, "__REALTIME_TIMESTAMP": str(at)}) for line in lines]
        self.says("journalctl", "\n".join(entries), 0 if lines else 1)

    def check(self, **settings: Any) -> Any:
        """One check; the report it wrote."""
        self.run(**settings)
        return self.report()

    def report(self) -> Any:
        return json.loads((self.root / "report.json").read_text())

    def run(self, *words: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        """``causeway-gpu-health`` with these words, to its end."""
        process = self.start(*words, **settings)
        out, errors = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, errors)

    def start(self, *words: str, **settings: Any) -> subprocess.Popen[str]:
        file = self.root / "settings.json"
        file.write_text(json.dumps({**self.settings, **settings}))
        return subprocess.Popen(
            [sys.executable, "-B", "-W", "error", "-m", "gpu_health", *words, "--settings", file],
            env={**os.environ, "PYTHONPATH": str(GPU / "files"), "ROOT": str(self.root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kubernetes(self) -> Node:
        """It becomes a Kubernetes node, known to a kubectl of ours."""
        (self.root / "kubelet.conf").touch()
        self.settings["node"] = "titan-01"
        self.program("kubectl", f'exec {sys.executable} {self.root}/kubectl.py "$@"')
        (self.root / "kubectl.py").write_text(KUBECTL)
        node = Node(self.root)
        node.write({"metadata": {"annotations": {"else": "1"}}, "spec": {}, "status": {"conditions": []}})
        return node


NVIDIA_SMI = """\
case "$1" in
  --query-gpu=driver_version) echo 580.159.04 ;;
  --query-gpu=mig.mode.current) cat {root}/mig 2>/dev/null || echo "[N/A]" ;;
  --query-compute-apps=pid) cat {root}/busy 2>/dev/null || true ;;
  *) cat {root}/nvidia-smi.said ;;
esac"""

KUBECTL = '''
import json, os, sys
from pathlib import Path

root = Path(os.environ["ROOT"])
asked = sys.argv[5:]
assert sys.argv[1:5] == ["--kubeconfig", str(root / "kubelet.conf"), "--request-timeout", "20s"], sys.argv
with (root / "kubectl.log").open("a") as log:
    log.write(" ".join(asked[:3]) + "\\n")
if (root / "unreachable").exists():
    sys.exit("the server could not be reached")
node = json.loads((root / "node.json").read_text())


def merge(old, new):
    """RFC 7396."""
    if not isinstance(new, dict):
        return new
    for key, value in new.items():
        if value is None:
            old.pop(key, None)
        else:
            old[key] = merge(old.get(key) if isinstance(old.get(key), dict) else {}, value)
    return old


assert asked[:2] in (["get", "node"], ["patch", "node"]) and asked[2] == "titan-01", asked
if asked[0] == "get":
    print(json.dumps(node))
else:
    patch = json.loads(asked[asked.index("--patch") + 1])
    if "--subresource" in asked:
        conditions = {each["type"]: each for each in node["status"]["conditions"]}
        conditions.update({each["type"]: each for each in patch["status"]["conditions"]})
        node["status"]["conditions"] = list(conditions.values())
    else:
        # What NodeRestriction lets a kubelet change.
        assert set(patch) <= {"metadata", "spec"} and set(patch["metadata"]) == {"annotations"}, patch
        assert set(patch["spec"]) == {"unschedulable"}, patch
        node = merge(node, patch)
    (root / "node.json").write_text(json.dumps(node))
'''


@dataclass
class Node:
    root: Path

    def read(self) -> Any:
        return json.loads((self.root / "node.json").read_text())

    def write(self, node: Mapping[str, Any]) -> None:
        (self.root / "node.json").write_text(json.dumps(node))

    def cordoned(self) -> bool:
        return bool(self.read()["spec"].get("unschedulable"))

    def cordon(self, value: bool) -> None:
        """As a person does."""
        node = self.read()
        node["spec"] = {"unschedulable": True} if value else {}
        self.write(node)

    def why(self) -> Any:
        return self.read()["metadata"]["annotations"].get("causeway/gpu-health")

    def condition(self) -> str:
        return str(self.read()["status"]["conditions"][0]["status"])

    def asked(self) -> int:
        """How many calls of kubectl there were, from the last time on."""
        log = self.root / "kubectl.log"
        count = len(log.read_text().splitlines()) if log.exists() else 0
        log.unlink(missing_ok=True)
        return count


def place(number: int) -> str:
    return f"0000:{number + 1:02x}:00.0"


H100 = json.loads((SAID / "nvidia-h100-80gb-hbm3.json").read_text())["-q -x"]


def xml(*gpus: Mapping[str, str]) -> str:
    """What `nvidia-smi -q -x` says of H100s: of each tag → value, over what a healthy one said."""
    before, healthy, after = re.split(r"(<gpu id.*</gpu>)", H100, flags=re.DOTALL)
    return before + "".join(_gpu(number, healthy, faults) for number, faults in enumerate(gpus)) + after


def _gpu(number: int, text: str, faults: Mapping[str, str]) -> str:
    """Errors of long ago, in the second ``dram_uncorrectable``, count for nothing."""
    text = re.sub(r'(?<=<gpu id=")[^"]*', f"0000{place(number).upper()}", text)
    text = re.sub(r"(?<=<uuid>)[^<]*", f"GPU-{number}", text)
    text = re.sub(r"(<aggregate>.*?<dram_uncorrectable>)0", r"\g<1>7", text, flags=re.DOTALL)
    for tag, value in faults.items():
        text, replaced = re.subn(rf"(?<={tag}>)[^<]+", value, text, count=1)
        assert replaced
    return text


def healthy_machine(root: Path) -> Machine:
    """Two GPUs, both well; no Kubernetes."""
    (root / "boot").write_text("first\n")
    files = {
        "nvidia_smi": "nvidia-smi",
        "kubeconfig": "kubelet.conf",
        "report": "report.json",
        "state": "state.json",
        "burn_in": "burn-in.json",
    }
    files |= {name: name for name in ("journalctl", "kubectl", "dcgmi", "pci", "boot")}
    settings = {"count": 2, "xids": XIDS, "bad_after": 3, "good_after": 3, "timeout": 20}
    machine = Machine(root, {**settings, **{name: str(root / file) for name, file in files.items()}})
    machine.gpus({}, {})
    machine.logs()
    return machine


HARDWARE = {
    "diagnostic": "Hardware",
    "memory": "Hardware",
    "pcie": "Integration",
    "targeted_stress": "Stress",
}
"""Tests of DCGM's level 3 and their categories."""


@dataclass(frozen=True)
class Found:
    """What a test of DCGM found on one GPU."""

    status: str = "Pass"
    warning: str = ""
    severity: int = 1


def diagnosis(found: Mapping[tuple[str, int], Found] | None = None, *, hardware: str = "Pass") -> str:
    """What `dcgmi diag --run 3 --json` prints of two GPUs (NVIDIA/DCGM 4, dcgmi/Diag.cpp): all pass, but for
    what was ``found`` by (test, GPU), and ``hardware``, the status of the tests that are not about software.
    """

    def test(name: str, default: str) -> dict[str, Any]:
        results, warnings = [], []
        for gpu in range(2):
            one = (found or {}).get((name, gpu), Found(default))
            error = {"error_category": 10, "error_id": 52, "error_severity": one.severity}
            said = [{**error, "warning": one.warning}] if one.warning else []
            entity = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": one.status}
            results.append({**entity, **({"warnings": said} if said else {})})
            warnings += said
        order = ("Fail", "Warn", "Pass", "Skip")
        summary = {"status": min((each["status"] for each in results), key=order.index)}
        return {
            "name": name,
            "results": results,
            "test_summary": {**summary, **({"warnings": warnings} if warnings else {})},
        }

    categories: dict[str, list[dict[str, Any]]] = {"Deployment": [test("software", "Pass")]}
    for name, category in HARDWARE.items():
        categories.setdefault(category, []).append(test(name, hardware))
    gpus = [{"device_id": "2330", "entity_id": gpu} for gpu in range(2)]
    return json.dumps(
        {
            "DCGM Diagnostic": {
                "test_categories": [{"category": name, "tests": tests} for name, tests in categories.items()]
            },
            "entity_groups": [{"entities": gpus, "entity_group": "GPU", "entity_group_id": 1}],
            "metadata": {"Driver Version Detected": "580.159.04", "version": "4.5.1"},
        },
        indent=8,
    )
