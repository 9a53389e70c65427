"""One look at the cards."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpu_health import kernel, smi
from gpu_health.findings import Card, Fault, Findings, Weight
from gpu_health.judge import State
from gpu_health.settings import Settings

_NVIDIA = "0x10de"
_DISPLAY = ("0x0300", "0x0302")  # graphics card, 3D controller; not its audio, not an NVSwitch


def boot(settings: Settings) -> str:
    return settings.boot.read_text().strip()


def look(settings: Settings, state: State) -> Findings:
    """All that can be found without waiting for ever. Whatever fails is a finding too."""
    seen = on_the_bus(settings.pci)
    findings = _ask(settings, state, seen)
    _missing(findings, settings, state, seen)
    _logged(findings, settings, state.forgiven)
    return findings


def on_the_bus(devices: Path) -> list[str]:
    """PCI addresses of NVIDIA's cards."""
    return sorted(each.name for each in devices.iterdir() if _is_card(each))


def _is_card(device: Path) -> bool:
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


def _one_by_one(settings: Settings, state: State, seen: list[str]) -> list[Card]:
    """A card that is lost can spoil the answer for all: who else is well?"""
    cards: list[Card] = []
    for place in seen:
        try:
            cards += smi.query(settings, place)
        except smi.FailedError:
            continue
        except smi.HangsError as problem:
            state.left = problem.left
            break
    for number, card in enumerate(cards):
        card.index = number
    return cards


def _missing(findings: Findings, settings: Settings, state: State, seen: list[str]) -> None:
    """A card each for those that do not answer, by their place on the bus as far as that is known."""
    answering = {card.address for card in findings.cards}
    state.most = max(state.most, len(findings.cards), len(seen))
    expected = state.most if settings.count is None else settings.count
    silent = [place for place in seen if place not in answering]
    # Where nvidia-smi itself failed, that is what is known; it may answer the next time.
    weight = Weight.PASSING if findings.faults else Weight.LASTING
    for number in range(len(findings.cards), expected):
        place = silent.pop(0) if silent else ""
        where = f"at {place} does not answer" if place else "is not on the bus"
        if findings.faults and place:
            fault = Fault(f"the card {where}", weight)
        else:
            fault = Fault(f"the card {where}: {len(answering)} of {expected} answer", Weight.LASTING)
        findings.cards.append(Card(number, "unknown", "", place, [fault]))
    if len(answering) > expected:
        surplus = f"{len(answering)} cards, where {expected} are expected"
        findings.faults.append(Fault(surplus, Weight.NOTE))


def _logged(findings: Findings, settings: Settings, forgiven: int) -> None:
    try:
        logged = kernel.xids(settings)
    except (OSError, subprocess.TimeoutExpired) as problem:
        findings.faults.append(Fault(f"the kernel's log can't be read: {problem}", Weight.NOTE))
        return
    cards = {card.address: card for card in findings.cards if card.address}
    for xid in logged:
        if xid.number not in settings.xids or xid.at <= forgiven:
            continue
        fault = Fault(f"Xid {xid.number}: {xid.text}" if xid.text else f"Xid {xid.number}", Weight.LASTING)
        card = cards.get(xid.address)
        faults = card.faults if card else findings.faults
        if fault not in faults:
            faults.append(fault)
