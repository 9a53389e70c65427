"""Xids, NVIDIA's numbered errors, that the driver wrote to the kernel's log since the boot.

https://docs.nvidia.com/deploy/xid-errors/ says what each means.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass

from gpu_health.settings import Settings

# "NVRM: Xid (PCI:0000:0a:00): 79, pid=…, GPU has fallen off the bus."
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<address>[0-9a-fA-F:.]+)\): (?P<number>\d+),?(?P<text>.*)", re.DOTALL)
_DETAILS = re.compile(r"^(pid=\S+\s*|name=\S+\s*|channel \S+\s*)+", re.IGNORECASE)


@dataclass(frozen=True)
class Xid:
    """One error of one GPU."""

    address: str
    """The GPU's: ``0000:0a:00.0``."""
    number: int
    text: str
    at: int
    """Seconds since 1970."""


def xids(settings: Settings) -> list[Xid]:
    """In the order in which they came. A log that can't be read is an OSError."""
    ran = subprocess.run(
        [settings.journalctl, "--dmesg", "--boot", "--no-pager", "--output=json", "--grep=NVRM: Xid"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    if ran.returncode != 0 and ran.stdout.strip():  # 1 and nothing said: no line matches
        raise OSError(f"journalctl: {ran.stderr.decode(errors='replace').strip()}")
    return [found for line in ran.stdout.splitlines() if (found := _xid(json.loads(line)))]


def _xid(entry: dict[str, object]) -> Xid | None:
    message = entry.get("MESSAGE")
    if isinstance(message, list):  # bytes that are not UTF-8
        message = bytes(message).decode(errors="replace")
    found = _XID.search(str(message))
    if not found:
        return None
    return Xid(
        address=_address(found["address"]),
        number=int(found["number"]),
        text=_DETAILS.sub("", found["text"].replace(", ", " ").strip()).strip().rstrip("."),
        at=int(str(entry.get("__REALTIME_TIMESTAMP", 0))) // 1_000_000,
    )


def _address(written: str) -> str:
    """The kernel leaves the function out: ``0000:0A:00`` → ``0000:0a:00.0``."""
    return written.lower() if "." in written else f"{written.lower()}.0"
