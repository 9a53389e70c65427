"""One check of the GPUs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpu_health import burn_in, kernel, smi
from gpu_health.findings import Fault, Findings, Gpu, Weight
from gpu_health.judge import State
from gpu_health.settings import Settings

_NVIDIA = "0x10de"
_DISPLAY = ("0x0300", "0x0302")  # VGA controller, 3D controller; not its audio, not an NVSwitch


def boot(settings: Settings) -> str:
    return settings.boot.read_text().strip()


def look(settings: Settings, state: State) -> Findings:
    """All that can be found without waiting for ever. Whatever fails is a finding too."""
    seen = on_the_bus(settings.pci)
    findings = _ask(settings, state, seen)
    _missing(findings, settings, state, seen)
    _logged(findings, settings, state.forgiven)
    burn_in.look(findings, settings, state.forgiven)
    return findings


def on_the_bus(devices: Path) -> list[str]:
    """PCI addresses of NVIDIA's GPUs."""
    return sorted(each.name for each in devices.iterdir() if _is_gpu(each))


def _is_gpu(device: Path) -> bool:
    try:
        vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
    except OSError:  # it left this moment
        return False
    return vendor.strip() == _NVIDIA and kind.startswith(_DISPLAY)


def _ask(settings: Settings, state: State, seen: list[str]) -> Findings:
    if state.left and smi.Process.of(state.left.pid) == state.left:
        # Each further one would hang as well, and none of them can be ended.
        return Findings(faults=[Fault("nvidia-smi hangs within the driver: reboot", Weight.LASTING)])
    state.left = None
    try:
        return Findings(smi.query(settings))
    except smi.HangsError as problem:
        state.left = problem.left
        return Findings(faults=[Fault(str(problem), Weight.PASSING)])
    except smi.FailedError as problem:
        fault = Fault(f"nvidia-smi: {problem}", Weight.PASSING)
        return Findings(_one_by_one(settings, state, seen), [fault])


def _one_by_one(settings: Settings, state: State, seen: list[str]) -> list[Gpu]:
    """A lost GPU can break the query for all, so each is queried alone."""
    gpus: list[Gpu] = []
    for place in seen:
        try:
            gpus += smi.query(settings, place)
        except smi.FailedError:
            continue
        except smi.HangsError as problem:
            state.left = problem.left
            break
    for number, gpu in enumerate(gpus):
        gpu.index = number
    return gpus


def _missing(findings: Findings, settings: Settings, state: State, seen: list[str]) -> None:
    """Adds the GPUs that do not answer, with their address on the bus if it is known."""
    answering = {gpu.address for gpu in findings.gpus}
    state.most = max(state.most, len(findings.gpus), len(seen))
    expected = state.most if settings.count is None else settings.count
    silent = [place for place in seen if place not in answering]
    # Where nvidia-smi itself failed, that is what is known; it may answer the next time.
    weight = Weight.PASSING if findings.faults else Weight.LASTING
    for number in range(len(findings.gpus), expected):
        place = silent.pop(0) if silent else ""
        what = f"no answer at {place}" if place else "not on the bus"
        if findings.faults and place:
            fault = Fault(what, weight)
        else:
            fault = Fault(f"{what}: {len(answering)} of {expected} answer", Weight.LASTING)
        findings.gpus.append(Gpu(number, "unknown", "", place, [fault]))
    if len(answering) > expected:
        surplus = f"{len(answering)} GPUs found, {expected} expected"
        findings.faults.append(Fault(surplus, Weight.NOTE))


def _logged(findings: Findings, settings: Settings, forgiven: int) -> None:
    try:
        logged = kernel.xids(settings)
    except (OSError, subprocess.TimeoutExpired) as problem:
        findings.faults.append(Fault(f"the kernel's log can't be read: {problem}", Weight.NOTE))
        return
    gpus = {gpu.address: gpu for gpu in findings.gpus if gpu.address}
    for xid in logged:
        if xid.number not in settings.xids or xid.at <= forgiven:
            continue
        fault = Fault(f"Xid {xid.number}: {xid.text}" if xid.text else f"Xid {xid.number}", Weight.LASTING)
        gpu = gpus.get(xid.address)
        faults = gpu.faults if gpu else findings.faults
        if fault not in faults:
            faults.append(fault)
