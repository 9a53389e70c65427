"""``nvidia-smi``: asked with a time limit, and its XML read.

The XML differs between driver branches (470: ``clocks_throttle_reasons``, ``pending_blacklist``; since 535:
``clocks_event_reasons``, ``pending_retirement``); what a GPU does not have says ``N/A`` or is not there.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

from gpu_health.findings import Fault, Gpu, Weight
from gpu_health.settings import Settings

_LOST = ("unknown error", "err!", "gpu is lost", "gpu access blocked")


@dataclass(frozen=True)
class Process:
    """A process by its number and its start, which together are never used again."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """None where there is none, or only its remains."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(pid, fields[19])


class HangsError(Exception):
    """It did not answer in time. ``left`` is what not even SIGKILL ended: it waits within the driver."""

    def __init__(self, seconds: float, left: Process | None) -> None:
        super().__init__(f"nvidia-smi does not answer within {seconds:.0f} s")
        self.left = left


class FailedError(Exception):
    """It ended with an error, or printed something that is not XML."""


def query(settings: Settings, address: str | None = None) -> list[Gpu]:
    """All GPUs, or the one at a PCI address. Raises HangsError or FailedError."""
    only = ["--id", address] if address else []
    text = _run([settings.nvidia_smi, "--query", "--xml-format", *only], settings.timeout)
    try:
        log = ElementTree.fromstring(text)  # noqa: S314 (of a program of this machine)
    except ElementTree.ParseError:
        raise FailedError(_one_line(text)) from None
    return [_gpu(number, element, settings) for number, element in enumerate(log.iter("gpu"))]


def values(settings: Settings, query: str) -> list[str]:
    """The lines of a query for CSV, ``--query-gpu=driver_version``. Raises HangsError or FailedError."""
    form = "--format=csv,noheader,nounits"
    return _run([settings.nvidia_smi, query, form], settings.timeout).split("\n")[:-1]


def _run(command: list[str], timeout: float) -> str:
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as problem:
        raise FailedError(str(problem)) from None
    started = Process.of(process.pid)
    try:
        text, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            raise HangsError(timeout, started) from None
        raise HangsError(timeout, None) from None
    if process.returncode != 0:
        raise FailedError(_one_line(text) or f"nvidia-smi ended with {process.returncode}")
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _gpu(number: int, element: Element, settings: Settings) -> Gpu:
    gpu = Gpu(
        index=number,
        name=_text(element, "product_name"),
        uuid=_text(element, "uuid"),
        address=address(element.get("id", "")),
    )
    gpu.faults += [*_lost(element), *_memory(element, settings), *_throttled(element), *_wants(element)]
    if _text(element, "persistence_mode") == "Disabled":
        gpu.faults.append(Fault("persistence mode is off", Weight.NOTE))
    return gpu


def address(bus_id: str) -> str:
    """``00000000:0A:00.0`` → ``0000:0a:00.0``: as sysfs and the kernel write it."""
    found = re.fullmatch(r"(?:0000)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", bus_id.lower())
    return found[1] if found else ""


def _lost(element: Element) -> list[Fault]:
    """A GPU that left while it was being asked answers so in every field."""
    said = {(field.text or "").strip().strip("[]").lower() for field in element.iter()}
    gone = sorted(said & set(_LOST))
    return [Fault(f"does not answer: {', '.join(gone)}", Weight.LASTING)] if gone else []


def _memory(element: Element, settings: Settings) -> list[Fault]:
    faults = []
    errors = _uncorrectable(element)
    if errors > settings.uncorrectable:
        faults.append(Fault(f"{errors} uncorrectable ECC errors since the driver was loaded", Weight.LASTING))
    for path, text in (
        ("remapped_rows/remapped_row_pending", "a row waits to be remapped: reset the GPU"),
        ("remapped_rows/remapped_row_failure", "a row could not be remapped: replace the GPU"),
        ("retired_pages/pending_retirement", "a page waits to be retired: reset the GPU"),
        ("retired_pages/pending_blacklist", "a page waits to be retired: reset the GPU"),
        ("ecc_errors/aggregate/sram_threshold_exceeded", "too many SRAM errors: replace the GPU"),
    ):
        fault = Fault(text, Weight.LASTING)
        if _text(element, path) == "Yes" and fault not in faults:
            faults.append(fault)
    return faults


def _uncorrectable(element: Element) -> int:
    """Turing and later count SRAM and DRAM apart, those before by the places of double-bit errors."""
    volatile = element.find("ecc_errors/volatile")
    if volatile is None:
        return 0
    counted = [each for each in volatile if "uncorrectable" in each.tag]
    total = volatile.find("double_bit/total")
    return sum(_number(each.text) for each in [*counted, *([total] if total is not None else [])])


def _throttled(element: Element) -> list[Fault]:
    faults = []
    for reason in [
        *element.findall("clocks_throttle_reasons/*"),
        *element.findall("clocks_event_reasons/*"),
    ]:
        if (reason.text or "").strip() != "Active":
            continue
        if reason.tag.endswith("_hw_thermal_slowdown"):
            faults.append(
                Fault(f"slowed down by heat, {_text(element, 'temperature/gpu_temp')}", Weight.PASSING)
            )
        if reason.tag.endswith("_hw_power_brake_slowdown"):
            faults.append(Fault("slowed down by the power brake: see the power supplies", Weight.PASSING))
    return faults


def _wants(element: Element) -> list[Fault]:
    """Branches since 570 say what a GPU needs."""
    action = _text(element, "gpu_recovery_action")
    return [] if action in ("", "None", "N/A") else [Fault(f"needs: {action}", Weight.LASTING)]


def _text(element: Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _number(text: str | None) -> int:
    return int(text) if text and text.strip().isdigit() else 0
