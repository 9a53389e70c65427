"""Sizes and durations in the notation that people use: ``40 GiB``, ``90m``, ``12:00:00``."""

from __future__ import annotations

import re

SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([KMGTkmgt]i?B?|B)$")
DURATION = re.compile(
    r"^(?=\d)(?:(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?"
    r"|(?:(\d+)-)?(\d+):([0-5]?\d):([0-5]?\d))$"
)
"""Units, or ``[days-]hours:minutes:seconds`` (sbatch(1), ``--time``)."""
_LARGEST = 1 << 60
"""In bytes: a larger size must be a mistake."""
_POWERS = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: object) -> int:
    """Parse ``40 GiB`` or ``512 MB`` into bytes. Raises ValueError for anything else, including a number
    without a unit and more than an exbibyte."""
    match = SIZE.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text} is not a size; write it like 40 GiB")
    unit = match[2].lower()
    base = 1024 if "i" in unit else 1000
    size = float(match[1]) * base ** _POWERS[unit[0]]
    if size > _LARGEST:
        raise ValueError(f"{text} is too large")
    return int(size)


def format_size(size: float) -> str:
    """Format a size: ``40 GiB``, ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def exact_size(size: int) -> str:
    """Format a size for a file: in the largest unit without a fraction."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size % 1024**power == 0:
            return f"{size // 1024**power} {unit}"
    return f"{size} B"


def parse_cpus(quantity: str) -> float:
    """Parse a quantity of Kubernetes into a number of processors: ``3500m``, ``4``."""
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


def parse_duration(text: object) -> int:
    """Parse ``90m``, ``1d12h``, ``12:00:00`` into seconds. Raises ValueError for anything else, including a
    number without a unit."""
    match = DURATION.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text} is not a duration; write it like 90m, 24h, 3d or 12:00:00")
    written = match.groups()
    days, hours, minutes, seconds = (
        int(unit or clock or 0) for unit, clock in zip(written[:4], written[4:], strict=True)
    )
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def format_duration(seconds: float) -> str:
    """Format a duration in the two largest units: ``1d12h``, ``1m5s``, ``0s``."""
    return "".join(_parts(seconds)[:2]) or "0s"


def exact_duration(seconds: int) -> str:
    """Format a duration for a file: in all units."""
    return "".join(_parts(seconds)) or "0s"


def _parts(seconds: float) -> list[str]:
    rest, parts = int(seconds), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return parts
