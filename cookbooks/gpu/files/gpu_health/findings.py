"""What a check found, as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum


class Weight(Enum):
    """What a fault means for the machine."""

    NOTE = "note"
    """Informational; work continues."""
    PASSING = "passing"
    """May be gone the next minute: counts when it stays."""
    LASTING = "lasting"
    """Goes away by a reset, a reboot or a technician: counts at once."""


@dataclass(frozen=True)
class Fault:
    """Something that is not as it should be."""

    text: str
    weight: Weight


@dataclass
class Gpu:
    """A GPU that was found, or is expected."""

    index: int
    name: str
    uuid: str
    address: str
    """On the PCI bus, as sysfs has it: ``0000:0a:00.0``; empty for a GPU that is nowhere to be seen."""
    faults: list[Fault] = field(default_factory=list)

    def healthy(self) -> bool:
        return all(fault.weight is Weight.NOTE for fault in self.faults)


@dataclass
class Findings:
    """A whole check."""

    gpus: list[Gpu] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    """Of the machine, not of one GPU."""

    def all(self) -> Iterable[Fault]:
        yield from self.faults
        for gpu in self.gpus:
            yield from gpu.faults

    def weigh(self, weight: Weight) -> bool:
        """Whether there is any fault of that weight."""
        return any(fault.weight is weight for fault in self.all())

    def summary(self) -> str:
        """One line for people: what counts against the machine, each thing once."""
        said = [fault.text for fault in self.faults if fault.weight is not Weight.NOTE]
        alike: dict[str, list[str]] = {}
        for gpu in self.gpus:
            for fault in gpu.faults:
                if fault.weight is not Weight.NOTE:
                    alike.setdefault(fault.text, []).append(str(gpu.index))
        for text, gpus in alike.items():
            said.append(f"GPU{'s' if len(gpus) > 1 else ''} {', '.join(gpus)}: {text}")
        return "; ".join(said)
