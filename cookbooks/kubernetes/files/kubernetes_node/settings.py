"""What Chef wrote down for the programs of a master, and where files are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timezone
from pathlib import Path
from typing import Any

UTC = timezone.utc  # noqa: UP017  # Ubuntu 22.04 has Python 3.10


class Failed(Exception):  # noqa: N818
    """What went wrong, for the journal."""


@dataclass(frozen=True)
class Paths:
    """A master's files, below ``/`` or where else its system is mounted."""

    root: Path = Path("/")

    @property
    def settings(self) -> Path:
        return self.root / "etc/causeway/control-plane.json"

    @property
    def kubernetes(self) -> Path:
        return self.root / "etc/kubernetes"

    @property
    def manifests(self) -> Path:
        return self.kubernetes / "manifests"

    @property
    def stopped(self) -> Path:
        """Manifests of pods that are not to run, while etcd is put back."""
        return self.kubernetes / "manifests.stopped"

    @property
    def state(self) -> Path:
        return self.root / "var/lib/causeway"

    @property
    def audit(self) -> Path:
        """The folder of the API server's audit log."""
        return self.root / "var/log/kubernetes/audit"

    @property
    def metrics(self) -> Path:
        """The folder that the node exporter's textfile collector reads (Debian's own place for it)."""
        return self.root / "var/lib/prometheus/node-exporter"

    @property
    def admin(self) -> Path:
        return self.kubernetes / "admin.conf"


@dataclass(frozen=True)
class Bucket:
    """Where copies of etcd are, or the audit log."""

    name: str
    prefix: str
    region: str


@dataclass(frozen=True)
class Settings:
    """A master's settings."""

    cluster: str
    name: str
    endpoint: str
    masters: dict[str, str]
    """Every master's name → its full name in DNS."""
    bucket: Bucket | None
    """Of copies of etcd."""
    audit: Bucket | None
    """Of the audit log."""
    parameter: str | None
    """The parameter that tokens are put into."""
    region: str | None
    copies: tuple[str, ...]
    """Other AWS regions that they are put into."""
    regions: tuple[str, ...]
    """AWS regions of the machines that join with them."""
    certificates: dict[str, Any]


def _bucket(kept: dict[str, str]) -> Bucket | None:
    return Bucket(kept["bucket"], kept["prefix"], kept["region"]) if kept.get("bucket") else None


def read(paths: Paths) -> Settings:
    """Failed where there are none."""
    try:
        text = json.loads(paths.settings.read_text(encoding="utf-8"))
        return Settings(
            cluster=text["cluster"],
            name=text["name"],
            endpoint=text["endpoint"],
            masters=text["masters"],
            bucket=_bucket(text["snapshots"]),
            audit=_bucket(text.get("audit", {})),
            parameter=text["join"]["parameter"],
            region=text["join"]["region"],
            copies=tuple(text["join"].get("copies", ())),
            regions=tuple(text["join"].get("regions", ())),
            certificates=text["certificates"],
        )
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise Failed(f"{paths.settings} can't be used: {problem!r}; a Chef run writes it") from problem
