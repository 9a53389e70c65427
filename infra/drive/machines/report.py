"""What a run of Chef reported, and where reports are kept: ``build/<env>/reports/<node>/``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from infra.drive import clock
from infra.drive.ssh import Remote

REPORT: Final = "/var/lib/causeway/report.json"
REHEARSAL: Final = "/var/lib/causeway/why-run.json"
"""What a why-run reported: it is not a converge, and must not hide the last one."""

STARTED: Final = "/run/causeway-converge"
"""Touched by ``templates/converge/run.sh`` when a run begins."""

KEPT: Final = 20
"""Reports kept of each machine."""


@dataclass(frozen=True, slots=True)
class Report:
    """A run, as the handler on the machine wrote it down (``templates/chef/static/handlers``)."""

    ended: datetime
    success: bool
    updated: tuple[str, ...]
    """The resources that were changed, ``service[chrony]``."""
    total: int
    exception: str
    chef: str
    inputs: str
    """The digests of what the machine had been sent, see ``payload.Payload.inputs``."""
    cookbooks: Mapping[str, str]
    text: Mapping[str, Any]
    """All of it."""


@dataclass(frozen=True, slots=True)
class BurnIn:
    """A burn-in, as the machine wrote it down (``cookbooks/gpu/files/gpu_health/burn_in.py``)."""

    state: str
    """``running``, ``passed``, ``failed``, or ``skipped``: no test of the hardware ran."""
    began: datetime
    failed: tuple[str, ...]
    """Names of the tests that failed."""
    reasons: tuple[str, ...]
    """What each of those said: ``memory: …``."""
    text: Mapping[str, Any]
    """All of it."""


def parse_burn_in(found: object) -> BurnIn | None:
    """A burn-in from its JSON value; None for what is none."""
    if not isinstance(found, dict):
        return None
    try:
        failed = [test for test in found["tests"] if test["result"] == "fail"]
        return BurnIn(
            str(found["state"]),
            datetime.fromisoformat(found["started"]),
            tuple(str(test["name"]) for test in failed),
            tuple(": ".join([test["name"], *test["messages"][:1]]) for test in failed),
            found,
        )
    except (KeyError, ValueError, TypeError):
        return None


def parse(found: object) -> Report | None:
    """A report from its JSON value; None for what is none."""
    if not isinstance(found, dict):
        return None
    try:
        return Report(
            # A run that failed before it came to anything has no end.
            ended=datetime.fromisoformat(str(found.get("ended") or found["started"])).astimezone(UTC),
            success=bool(found["success"]),
            updated=tuple(map(str, found["updated"])),
            total=int(found["total"]),
            exception=str(found.get("exception") or ""),
            chef=str(found.get("chef") or ""),
            inputs=str(found.get("inputs") or ""),
            cookbooks={str(name): str(version) for name, version in (found.get("cookbooks") or {}).items()},
            text=found,
        )
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def fetch(remote: Remote, *, why_run: bool) -> Report | None:
    """The report of the run that has just ended; None where that run did not come to write one.

    An older file is an earlier run's. The machine compares the times: its clock need not agree with ours.
    """
    path = REHEARSAL if why_run else REPORT
    code, text = remote.run(
        f'[ -n "$(find {path} -newer {STARTED} 2>/dev/null)" ] && cat {path}', check=False
    )
    if code:
        return None
    try:
        return parse(json.loads(text))
    except ValueError:
        return None


def keep(build: Path, node: str, kind: str, made: Mapping[str, Any] | None, log: str) -> Path | None:
    """Keep a run's report and its log; where they are. The oldest go, those of each ``kind`` (``converge``,
    ``why-run``, ``burn-in``) apart."""
    folder = build / "reports" / node
    folder.mkdir(parents=True, exist_ok=True)
    now = clock.now()
    stem = f"{now:%Y%m%dT%H%M%S.%f}Z-{kind}"
    (folder / f"{stem}.log").write_text(log, encoding="utf-8")
    kept = folder / f"{stem}.json"
    if made is not None:
        kept.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    stems = sorted({path.name.rsplit(".", 1)[0] for path in folder.glob(f"*-{kind}.*")})
    for old in stems[:-KEPT]:
        for path in folder.glob(f"{old}.*"):
            path.unlink(missing_ok=True)
    return kept if made is not None else folder / f"{stem}.log"
