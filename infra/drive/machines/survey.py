"""Collects facts about a machine with one script: ``templates/converge/survey.sh``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from infra.drive import clock
from infra.drive.machines.report import BurnIn, Report, parse, parse_burn_in
from infra.drive.ssh import Remote, opened, settings
from infra.errors import CausewayError, DriveError
from infra.shipped_files import ROOT

SCRIPT: Final = ROOT / "templates" / "converge" / "survey.sh"

AT_ONCE: Final = 32
"""Machines asked at the same time."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, as the health check on the machine sees it."""

    index: int
    name: str
    healthy: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """A machine as it is."""

    os: str
    """``ubuntu 24.04``."""
    kernel: str
    architecture: str
    booted: datetime | None
    behind: float
    """Seconds its clock is behind ours."""
    cpus: int
    memory_mib: int
    macs: frozenset[str]
    addresses: frozenset[str]
    disks: Mapping[str, int]
    """Device → MiB."""
    arrays: Mapping[str, int]
    """Software RAID with redundancy (md): device → how many of its disks are missing."""
    gpu_count: int
    """NVIDIA GPUs on the PCI bus."""
    gpus: tuple[Gpu, ...] | None
    """None before the health check has run."""
    gpu_trouble: str
    """What is wrong with its GPUs, in the health check's words; empty when all is well."""
    burn_in: BurnIn | None
    """The last one; None where there was none."""
    packages: Mapping[str, str]
    """Installed versions of what matters: kubelet, containerd, nvidia, …"""
    reboot: bool
    """Whether it waits for a reboot."""
    secure_boot: bool
    """Whether its firmware lets signed kernel modules alone in."""
    report: Report | None
    """Of the last run of Chef."""
    rehearsal: Report | None
    """Of the last why-run."""


@dataclass(slots=True)
class _Said:
    one: dict[str, Any] = field(default_factory=dict)
    many: dict[str, list[str]] = field(default_factory=dict)


def survey(remote: Remote) -> Facts:
    """Ask a machine. ``DriveError`` for an answer that makes no sense."""
    asked = clock.now()
    _, text = remote.run(SCRIPT.read_text(encoding="utf-8"))
    said = _read(text)
    try:
        return _facts(said, asked)
    except (KeyError, ValueError, TypeError, AttributeError) as problem:
        raise DriveError(f"{remote.name}: its report cannot be parsed: {problem}") from None


def _read(text: str) -> _Said:
    said = _Said()
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue  # a report that was cut off in the middle, or what a login script printed
        if isinstance(found, dict):
            for key, value in found.items():
                said.one[key] = value
                said.many.setdefault(key, []).append(str(value))
    return said


def _facts(said: _Said, asked: datetime) -> Facts:
    assert said.one["end"] == "yes"  # the last line: without it, a KeyError says that the answer breaks off
    now = datetime.fromisoformat(said.one["now"])
    booted = said.one.get("booted")
    gpu = said.one.get("gpu")
    return Facts(
        os=said.one["os"],
        kernel=said.one["kernel"],
        architecture=said.one["architecture"],
        booted=datetime.fromisoformat(booted) if booted else None,
        behind=(asked - now).total_seconds(),
        cpus=int(said.one["cpus"]),
        memory_mib=int(said.one["memory_kib"]) // 1024,
        macs=frozenset(said.many.get("mac", ())),
        addresses=frozenset(said.many.get("address", ())),
        disks={
            device: int(size) // 2**20
            for device, _, size in (each.partition(" ") for each in said.many.get("disk", ()))
        },
        arrays={
            device: int(missing)
            for device, missing in (each.split(" ") for each in said.many.get("array", ()))
        },
        gpu_count=int(said.one["gpus"]),
        gpus=_gpus(gpu) if isinstance(gpu, dict) else None,
        gpu_trouble=""
        if not isinstance(gpu, dict) or gpu.get("healthy", True)
        else str(gpu.get("why") or "sick"),
        burn_in=parse_burn_in(said.one.get("burn_in")),
        packages=dict(each.split(" ", 1) for each in said.many.get("package", ())),
        reboot="reboot" in said.one,
        secure_boot="secure_boot" in said.one,
        report=parse(said.one.get("report")),
        rehearsal=parse(said.one.get("rehearsal")),
    )


def _gpus(gpu: Mapping[str, Any]) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(
            int(each["index"]),
            str(each["name"]),
            bool(each["healthy"]),
            tuple(map(str, each.get("reasons", ()))),
        )
        for each in gpu.get("gpus", ())
    )


def everywhere(
    machines: Iterable[tuple[str, str]], ask: Callable[[Remote], Answer]
) -> dict[str, Answer | CausewayError]:
    """Name → what ``ask`` found on each machine (name, full name), or why it could not be asked.

    ``UnreachedError`` for what keeps every one of them away: an SSH configuration that is not there.
    """

    def one(machine: tuple[str, str]) -> Answer | CausewayError:
        try:
            with opened(machine[1]) as remote:
                return ask(remote)
        except CausewayError as problem:
            return problem

    settings()
    wanted = list(machines)
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return dict(zip([name for name, _ in wanted], pool.map(one, wanted), strict=True))
