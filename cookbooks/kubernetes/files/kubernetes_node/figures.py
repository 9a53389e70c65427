"""Figures for the node exporter's textfile collector."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def record(folder: Path, prefix: str, *, failed: bool, **values: str) -> None:
    """Gauges of a program that ran: ``<prefix>_failed`` and others. Of a run that failed, only that it did:
    the last good one's stay."""
    file = folder / f"{prefix}.prom"
    lines = {f"{prefix}_failed": f"{int(failed)}"}
    lines |= {f"{prefix}_{name}": value for name, value in values.items()}
    if file.is_file():
        for line in file.read_text(encoding="ascii").splitlines():
            if not line.startswith("#"):
                key, _, value = line.partition(" ")
                lines.setdefault(key, value)
    tell(file, lines)


def tell(file: Path, lines: Mapping[str, str]) -> None:
    """Write gauges, all at once. Nothing where the node exporter has no folder."""
    if not file.parent.is_dir():
        return
    fresh = file.with_suffix(".new")
    text = "".join(f"# TYPE {key} gauge\n{key} {value}\n" for key, value in sorted(lines.items()))
    fresh.write_text(text, encoding="ascii")
    os.chmod(fresh, 0o644)  # noqa: PTH101
    fresh.replace(file)
