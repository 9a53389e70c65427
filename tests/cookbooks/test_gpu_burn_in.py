"""The burn-in of machines with GPUs, and what the health check makes of it.

The program is real. DCGM and the GPUs are stand-ins: `dcgmi` prints what NVIDIA's source of DCGM 4 prints,
and ``standin_gpus.c`` has the calls of CUDA's driver and of NCCL, on this computer's memory. No test here has
seen a real GPU.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cookbooks.gpu_machine import GPU, Found, Machine, diagnosis, healthy_machine
from waiting import until

FAULTY = Found("Fail", "Found 3 faulty memory elements on GPU 1", 2)
BURN_IN = ("burn-in", "--level", "3")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = healthy_machine(tmp_path)
    machine.says("dcgmi", diagnosis())
    return machine


def result(machine: Machine) -> Any:
    return json.loads((machine.root / "burn-in.json").read_text())


def outcomes(machine: Machine) -> dict[str, str]:
    return {each["name"]: each["result"] for each in result(machine)["tests"]}


def test_what_a_standin_of_dcgm_passes_is_kept(machine: Machine) -> None:
    ran = machine.run(*BURN_IN)
    assert ran.returncode == 0, ran.stderr
    found = result(machine)
    assert (found["state"], found["level"], found["driver"], found["dcgm"]) == (
        "passed", 3, "580.159.04", "4.5.1",
    )  # fmt: skip
    assert [gpu["uuid"] for gpu in found["gpus"]] == ["GPU-0", "GPU-1"]
    assert found["started"] <= found["ended"]
    # This computer has no libnccl.so.2.
    assert outcomes(machine) == {
        "software": "pass", "diagnostic": "pass", "memory": "pass", "pcie": "pass", "targeted_stress": "pass",
        "nccl_all_reduce": "skip",
    }  # fmt: skip
    assert machine.report()["healthy"] is True


def test_a_gpu_that_a_standin_of_dcgm_fails_is_sick_until_it_passes_or_is_replaced(machine: Machine) -> None:
    machine.says("dcgmi", diagnosis({("memory", 1): FAULTY}), 226)
    assert machine.run(*BURN_IN).returncode == 1
    (failed,) = [each for each in result(machine)["tests"] if each["result"] == "fail"]
    assert (failed["name"], failed["gpus"]) == ("memory", ["GPU-1"])
    assert failed["messages"] == ["Found 3 faulty memory elements on GPU 1"]
    # The verdict is there at once, and stays with the GPU.
    assert machine.report()["healthy"] is False
    assert [gpu["healthy"] for gpu in machine.check()["gpus"]] == [True, False]
    said = machine.root / "nvidia-smi.said"
    said.write_text(said.read_text().replace("<uuid>GPU-1<", "<uuid>GPU-9<"))
    assert [gpu["healthy"] for gpu in machine.check()["gpus"]] == [True, True]
    said.write_text(said.read_text().replace("<uuid>GPU-9<", "<uuid>GPU-1<"))
    machine.run("forget")
    assert [gpu["healthy"] for gpu in machine.check()["gpus"]] == [True, True]
    (machine.root / "state.json").unlink()
    machine.says("dcgmi", diagnosis())
    assert machine.run(*BURN_IN).returncode == 0
    assert [gpu["healthy"] for gpu in machine.check()["gpus"]] == [True, True]


@pytest.mark.parametrize(
    ("found", "result_of_pcie", "state"),
    [
        (Found("Warn", "the link is narrower than expected"), "warn", "passed"),
        # Of a test that passes DCGM may report errors (NVIDIA/DCGM#284).
        (Found("Pass", "could not allocate"), "warn", "passed"),
        (Found("Pass", "drain and reset this GPU", 6), "fail", "failed"),
    ],
)
def test_warnings_of_a_standin_of_dcgm(
    machine: Machine, found: Found, result_of_pcie: str, state: str
) -> None:
    machine.says("dcgmi", diagnosis({("pcie", 0): found}), 226)
    assert machine.run(*BURN_IN).returncode == (state == "failed")
    assert (result(machine)["state"], outcomes(machine)["pcie"]) == (state, result_of_pcie)


def test_a_gpu_that_dcgm_has_no_hardware_tests_for_has_not_passed(machine: Machine) -> None:
    """A stand-in says what DCGM says of a TITAN X of Pascal."""
    machine.says("dcgmi", diagnosis(hardware="Skip"))
    assert machine.run(*BURN_IN).returncode == 0
    assert result(machine)["state"] == "skipped"
    assert outcomes(machine)["software"] == "pass"


@pytest.mark.parametrize(
    ("said", "code", "message"),
    [
        ('{"DCGM Diagnostic": {"runtime_error": "GPUs are busy", "version": "4.5.1"}}', 226, "GPUs are busy"),
        ("Error: Unable to start an embedded host engine.", 255, "embedded host engine"),
        ('{"DCGM Diagnostic": {"test_categories": []}}', 226, "226"),
        ('{"DCGM Diagnostic": {"test_categories"', 0, "DCGM Diagnostic"),
    ],
)
def test_a_standin_of_dcgm_that_fails_itself(machine: Machine, said: str, code: int, message: str) -> None:
    machine.says("dcgmi", said, code)
    assert machine.run(*BURN_IN).returncode == 1
    (failed,) = [each for each in result(machine)["tests"] if each["result"] == "fail"]
    assert failed["name"] == "dcgmi diag"
    assert message in failed["messages"][0]


def test_without_dcgm(machine: Machine) -> None:
    (machine.root / "dcgmi").unlink()
    assert machine.run(*BURN_IN).returncode == 1
    assert outcomes(machine)["dcgmi diag"] == "fail"


def test_a_gpu_too_few_fails(machine: Machine) -> None:
    machine.run(*BURN_IN, count=4)
    assert (result(machine)["state"], outcomes(machine)["count"]) == ("failed", "fail")


def test_it_does_not_begin_while_gpus_are_in_use_or_may_be(machine: Machine) -> None:
    (machine.root / "busy").write_text("503\n")
    ran = machine.run(*BURN_IN)
    assert (ran.returncode, "503" in ran.stderr) == (2, True)
    (machine.root / "busy").unlink()
    (machine.root / "mig").write_text("Disabled\nEnabled\n")
    assert machine.run(*BURN_IN).returncode == 2
    (machine.root / "mig").write_text("Disabled\n[N/A]\n")
    node = machine.kubernetes()
    ran = machine.run(*BURN_IN)
    assert (ran.returncode, "titan-01" in ran.stderr) == (2, True)
    assert not (machine.root / "burn-in.json").exists()
    node.cordon(True)
    assert machine.run(*BURN_IN).returncode == 0
    (machine.root / "nvidia-smi").unlink()
    assert machine.run(*BURN_IN).returncode == 2


def hang(machine: Machine) -> None:
    """`dcgmi` waits for a child, as it does for nvvs, and ignores no signal."""
    machine.program("dcgmi", f"sleep 1000 & echo $! >{machine.root}/child; wait")


def child(machine: Machine) -> int:
    file = machine.root / "child"
    until(lambda: file.exists() and file.read_text().strip(), seconds=30)
    return int(file.read_text())


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_what_takes_too_long_is_ended_and_fails(machine: Machine) -> None:
    hang(machine)
    assert machine.run(*BURN_IN, "--limit", "1").returncode == 1
    assert outcomes(machine)["dcgmi diag"] == "fail"
    until(lambda: is_gone(child(machine)), seconds=30)


@pytest.mark.parametrize("way", ["SIGINT", "SIGHUP", "the standard input ends"])
def test_an_interrupted_one_leaves_nothing_but_the_earlier_result(machine: Machine, way: str) -> None:
    machine.run(*BURN_IN)
    earlier = result(machine)
    hang(machine)
    process = machine.start(*BURN_IN, "--attended")
    pid = child(machine)
    assert result(machine)["state"] == "running"
    # Only one at a time; and while it runs, nothing is wrong.
    assert machine.run(*BURN_IN).returncode == 2
    assert machine.check()["healthy"] is True
    if way.startswith("SIG"):
        process.send_signal(signal.Signals[way])
    process.communicate(timeout=60)  # closes its standard input
    assert process.returncode == 130
    until(lambda: is_gone(pid), seconds=30)
    assert result(machine) == earlier


def test_one_that_the_machine_did_not_survive_counts_as_failed(machine: Machine) -> None:
    hang(machine)
    process = machine.start(*BURN_IN)
    pid = child(machine)
    process.kill()
    process.communicate()
    os.kill(pid, signal.SIGKILL)
    report = machine.check()
    assert (report["healthy"], len(report["reasons"])) == (False, 1)
    assert all(gpu["healthy"] for gpu in report["gpus"])
    machine.says("dcgmi", diagnosis())
    assert machine.run(*BURN_IN).returncode == 0
    assert machine.report()["reasons"] == []


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("needs cc")
    folder = tmp_path_factory.mktemp("libraries")
    source, cuda = Path(__file__).with_name("standin_gpus.c"), folder / "libcuda.so.1"
    subprocess.run(["cc", "-Wall", "-Werror", "-O2", "-shared", "-fPIC", "-o", cuda, source], check=True)
    (folder / "libnccl.so.2").symlink_to(cuda)  # one file: they share the GPUs
    return folder


def all_reduce(libraries: Path, size: int = 1 << 16, **variables: str) -> tuple[int, Any]:
    ran = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-m", "gpu_health.nccl", str(size)],
        env={**os.environ, "PYTHONPATH": str(GPU / "files"), "LD_LIBRARY_PATH": str(libraries), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.stdout, ran.stderr
    return ran.returncode, json.loads(ran.stdout)


def test_an_all_reduce_over_standins_of_gpus(libraries: Path) -> None:
    code, said = all_reduce(libraries)
    assert code == 0
    # 64 KiB in 400 ms / 200, times 2(n-1)/n.
    assert said == {"gpus": 3, "bytes": 65536, "bus_gb_s": pytest.approx(65536 / 0.002 * 4 / 3 / 1e9)}


def test_wrong_sums_of_standins_of_gpus_are_found(libraries: Path) -> None:
    code, said = all_reduce(libraries, WRONG="1")
    assert (code, list(said)) == (1, ["error"])
    assert "GPU 1" in said["error"]


def test_a_machine_without_nccl_says_so(tmp_path: Path) -> None:
    code, said = all_reduce(tmp_path)
    assert (code, list(said)) == (0, ["missing"])


@pytest.mark.parametrize(("variables", "expected"), [({}, "passed"), ({"WRONG": "2"}, "failed")])
def test_an_all_reduce_over_standins_of_gpus_is_part_of_the_burn_in(
    machine: Machine,
    libraries: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    expected: str,
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    machine.says("dcgmi", diagnosis(hardware="Skip"))
    assert machine.run(*BURN_IN, all_reduce=1 << 16).returncode == (expected == "failed")
    found = result(machine)
    assert found["state"] == expected
    assert (found["bus_gb_s"] is None) == (expected == "failed")
