"""`invoke nodes`: every machine with a name of its own as it is now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from infra.commands.environment import Project
from infra.commands.machines.selection import Chosen, choose, existing
from infra.commands.rendering import write
from infra.commands.terminal import columns, note, say, say_json
from infra.drive import clock
from infra.errors import CausewayError

if TYPE_CHECKING:
    from infra.drive.machines.survey import Facts


def nodes(project: Project, site: str, names: Sequence[str], *, json: bool) -> int:
    """Each machine as it is now; 1 when one is down, failed its last run, or has a sick GPU."""
    from infra.drive.machines.survey import everywhere, survey

    chosen = existing(project, choose(project, site, names))
    found = everywhere([(each.name, each.fqdn) for each in chosen], survey)
    wanted = _inputs(project, chosen)
    rows = [_row(each, found[each.name], wanted.get(each.name)) for each in chosen]
    if json:
        say_json(rows)
    elif rows:
        heading = (
            "node", "site", "state", "converged", "drift", "gpus", "burn-in", "os", "kernel", "versions",
        )  # fmt: skip
        say(columns(heading, [_line(row) for row in rows]))
        for row in rows:
            if row["error"]:
                note(row["error"])
            for reason in row.get("gpus", {}).get("reasons", ()):
                note(f"{row['node']}: {reason}")
            for array, missing in row.get("degraded", {}).items():
                note(f"{row['node']}: the array {array} lacks {missing} of its disks")
            if row.get("keys_elsewhere"):
                note(f"{row['node']}: its keys are not in this folder; drift is judged by everything else")
    return 0 if all(row["state"] == "ok" for row in rows) else 1


def _inputs(project: Project, chosen: Iterable[Chosen]) -> dict[str, str]:
    """Node → the digests of what it would be sent now; nothing for one where they are unknown."""
    from infra.drive.machines.payload import payload, shared

    write(project)
    build = project.environment.build
    common = shared(build)
    trees = {gateway.node: gateway.tree for gateway in project.cluster.gateways}
    found = {}
    for each in chosen:
        try:
            tree = trees.get(each.name, "")
            found[each.name] = payload(build, each.name, each.site, each.roles, common, tree).inputs
        except CausewayError:
            continue
    return found


def _row(chosen: Chosen, found: Facts | CausewayError, wanted: str | None) -> dict[str, Any]:
    from infra.drive.machines.payload import differs, keyless

    row: dict[str, Any] = {"node": chosen.name, "site": chosen.site, "error": None}
    if isinstance(found, CausewayError):
        return {**row, "state": "down", "error": str(found)}
    report = found.report
    healthy = None if found.gpus is None else sum(gpu.healthy for gpu in found.gpus)
    sick = [
        f"GPU {gpu.index}: {reason}"
        for gpu in found.gpus or ()
        if not gpu.healthy
        for reason in gpu.reasons or ("sick",)
    ]
    if not sick and found.gpu_trouble:
        sick = [found.gpu_trouble]
    degraded = {array: missing for array, missing in found.arrays.items() if missing}
    state = (
        "never converged" if report is None
        else "failed" if not report.success
        else "degraded RAID" if degraded
        else "unhealthy GPU" if sick or (healthy is not None and healthy < chosen.gpus)
        else "ok"
    )  # fmt: skip
    drift = (
        None if report is None or wanted is None
        else "spec or cookbooks changed" if differs(report.inputs, wanted)
        else "none"
    )  # fmt: skip
    return {
        **row,
        "state": state,
        "converged": report.ended.isoformat() if report else None,
        "updated": len(report.updated) if report else None,
        "drift": drift,
        "keys_elsewhere": bool(report and wanted and keyless(report.inputs, wanted)),
        "would_change": len(found.rehearsal.updated) if found.rehearsal else None,
        "gpus": {"spec": chosen.gpus, "present": found.gpu_count, "healthy": healthy, "reasons": sick},
        "burn_in": found.burn_in.text if found.burn_in else None,
        "os": found.os,
        "kernel": found.kernel,
        "booted": found.booted.isoformat() if found.booted else None,
        "reboot_required": found.reboot,
        "secure_boot": found.secure_boot,
        "degraded": degraded,
        "chef": report.chef if report else None,
        "cookbooks": dict(report.cookbooks) if report else {},
        "packages": dict(found.packages),
    }


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    if row["state"] == "down":
        return (row["node"], row["site"], "down", *[""] * 7)
    gpus = row["gpus"]
    seen = gpus["present"] if gpus["healthy"] is None else gpus["healthy"]
    return (
        row["node"],
        row["site"],
        row["state"] + (", reboot" if row["reboot_required"] else ""),
        _ago(row["converged"]),
        {"none": "none", None: "?"}.get(row["drift"], "changed"),
        f"{seen}/{gpus['spec']}" if gpus["spec"] or gpus["present"] else "·",
        _burn_in(row["burn_in"]),
        row["os"],
        row["kernel"],
        ", ".join(f"{name} {version}" for name, version in row["packages"].items()),
    )


def _burn_in(found: dict[str, Any] | None) -> str:
    """``passed 2026-11-27``, ``failed 2026-11-27: memory``."""
    from infra.drive.machines.report import parse_burn_in

    made = parse_burn_in(found)
    if made is None:
        return "·"
    failed = f": {', '.join(made.failed)}" if made.failed else ""
    return f"{made.state} {made.began:%Y-%m-%d}{failed}"


def _ago(moment: str | None) -> str:
    if moment is None:
        return "never"
    seconds = (clock.now() - datetime.fromisoformat(moment)).total_seconds()
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit} ago"
    return "just now"
