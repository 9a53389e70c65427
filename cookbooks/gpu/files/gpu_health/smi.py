"""``nvidia-smi``: asked with a time limit, and its XML read.

The XML differs between driver branches (470: ``clocks_throttle_reasons``, ``pending_blacklist``; since 535:
``clocks_event_reasons``, ``pending_retirement``); what a card does not have says ``N/A`` or is not there.
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

from gpu_health.findings import Card, Fault, Weight
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
    """It ended with an error, or said something that is no XML."""


def query(settings: Settings, address: str | None = None) -> list[Card]:
    """All cards, or the one at a PCI address. Raises HangsError or FailedError."""
    only = ["--id", address] if address else []
    text = _run([settings.nvidia_smi, "--query", "--xml-format", *only], settings.timeout)
    try:
        log = ElementTree.fromstring(text)  # noqa: S314 (of a program of this machine)
    except ElementTree.ParseError:
        raise FailedError(_one_line(text)) from None
    return [_card(number, gpu, settings) for number, gpu in enumerate(log.iter("gpu"))]


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


def _card(number: int, gpu: Element, settings: Settings) -> Card:
    card = Card(
        index=number,
        name=_text(gpu, "product_name"),
        uuid=_text(gpu, "uuid"),
        address=address(gpu.get("id", "")),
    )
    card.faults += [*_lost(gpu), *_memory(gpu, settings), *_throttled(gpu), *_wants(gpu)]
    if _text(gpu, "persistence_mode") == "Disabled":
        card.faults.append(Fault("persistence mode is off", Weight.NOTE))
    return card


def address(bus_id: str) -> str:
    """``00000000:0A:00.0`` → ``0000:0a:00.0``: as sysfs and the kernel write it."""
    found = re.fullmatch(r"(?:0000)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", bus_id.lower())
    return found[1] if found else ""


def _lost(gpu: Element) -> list[Fault]:
    """A card that left while it was being asked answers so in every field."""
    said = {(element.text or "").strip().strip("[]").lower() for element in gpu.iter()}
    gone = sorted(said & set(_LOST))
    return [Fault(f"does not answer: {', '.join(gone)}", Weight.LASTING)] if gone else []


def _memory(gpu: Element, settings: Settings) -> list[Fault]:
    faults = []
    errors = _uncorrectable(gpu)
    if errors > settings.uncorrectable:
        faults.append(Fault(f"{errors} uncorrectable ECC errors since the driver was loaded", Weight.LASTING))
    for path, text in (
        ("remapped_rows/remapped_row_pending", "a row waits to be remapped: reset the card"),
        ("remapped_rows/remapped_row_failure", "a row could not be remapped: replace the card"),
        ("retired_pages/pending_retirement", "a page waits to be retired: reset the card"),
        ("retired_pages/pending_blacklist", "a page waits to be retired: reset the card"),
        ("ecc_errors/aggregate/sram_threshold_exceeded", "too many SRAM errors: replace the card"),
    ):
        fault = Fault(text, Weight.LASTING)
        if _text(gpu, path) == "Yes" and fault not in faults:
            faults.append(fault)
    return faults


def _uncorrectable(gpu: Element) -> int:
    """Turing and later count SRAM and DRAM apart, those before by the places of double-bit errors."""
    volatile = gpu.find("ecc_errors/volatile")
    if volatile is None:
        return 0
    counted = [each for each in volatile if "uncorrectable" in each.tag]
    total = volatile.find("double_bit/total")
    return sum(_number(each.text) for each in [*counted, *([total] if total is not None else [])])


def _throttled(gpu: Element) -> list[Fault]:
    faults = []
    for element in [*gpu.findall("clocks_throttle_reasons/*"), *gpu.findall("clocks_event_reasons/*")]:
        if (element.text or "").strip() != "Active":
            continue
        if element.tag.endswith("_hw_thermal_slowdown"):
            faults.append(Fault(f"slowed down by heat, {_text(gpu, 'temperature/gpu_temp')}", Weight.PASSING))
        if element.tag.endswith("_hw_power_brake_slowdown"):
            faults.append(Fault("slowed down by the power brake: see the power supplies", Weight.PASSING))
    return faults


def _wants(gpu: Element) -> list[Fault]:
    """Branches since 570 say what a card needs."""
    action = _text(gpu, "gpu_recovery_action")
    return [] if action in ("", "None", "N/A") else [Fault(f"needs: {action}", Weight.LASTING)]


def _text(gpu: Element, path: str) -> str:
    return (gpu.findtext(path) or "").strip()


def _number(text: str | None) -> int:
    return int(text) if text and text.strip().isdigit() else 0
