"""`invoke autoscaler.status`: whether it runs, what it waits for, what it is doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from infra.commands import cluster_access
from infra.commands.autoscaler import configuring
from infra.commands.environment import Project
from infra.commands.terminal import columns, note, say, say_json
from infra.drive import clock

if TYPE_CHECKING:
    from infra.autoscaler.memory import Memory
    from infra.drive.kubernetes.api import Api
    from infra.model import Cluster

LATE: Final = 60.0
"""Seconds since the Lease's last renewal after which no instance counts as active."""


def status(project: Project, *, json: bool) -> int:
    """Print the status; 1 if it does not work."""
    configuring.scalable(project)
    with cluster_access.reach(project) as there:
        found = gather(there.api, project.cluster, clock.now())
    if json:
        say_json(found)
    else:
        _tell(found)
    for problem in found["problems"]:
        note(f"! {problem}")
    return 1 if found["problems"] else 0


def gather(api: Api, cluster: Cluster, now: datetime) -> dict[str, Any]:
    """The autoscaler's status from the cluster, as JSON values."""
    from infra.autoscaler import memory
    from infra.autoscaler.kube.store import KEY
    from infra.render.kubernetes import autoscaler
    from infra.render.kubernetes.manifests import SYSTEM

    deployment = api.find(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{autoscaler.NAME}")
    lease = api.find(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{autoscaler.LEASE}")
    kept = api.find(f"/api/v1/namespaces/{SYSTEM}/configmaps/{autoscaler.MEMORY}")
    text = ((kept or {}).get("data") or {}).get(KEY)
    found: dict[str, Any] = {
        "image": _image(deployment),
        "replicas": _replicas(deployment),
        "dry_run": cluster.autoscaler.dry_run,
        "leader": _leader(lease, now),
        **_remembered(memory.load(text) if text else memory.Memory(), now.timestamp()),
    }
    found["problems"] = _problems(found, cluster)
    return found


def _image(deployment: Mapping[str, Any] | None) -> str | None:
    if deployment is None:
        return None
    image: str = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    return image


def _replicas(deployment: Mapping[str, Any] | None) -> dict[str, int]:
    if deployment is None:
        return {"wanted": 0, "ready": 0}
    ready = (deployment.get("status") or {}).get("readyReplicas") or 0
    return {"wanted": deployment["spec"].get("replicas", 1), "ready": ready}


def _leader(lease: Mapping[str, Any] | None, now: datetime) -> dict[str, Any] | None:
    spec = (lease or {}).get("spec") or {}
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder or not renewed:
        return None
    age = (now - datetime.fromisoformat(renewed)).total_seconds()
    return {"holder": holder, "seconds_ago": round(age, 1)}


def _remembered(memory: Memory, now: float) -> dict[str, Any]:
    return {
        "backoffs": [
            {"group": key, "code": each.code, "until": each.until, "times": each.step, "says": each.message}
            for key, each in sorted(memory.backoffs.items())
            if each.until > now
        ],
        "drains": [
            {"node": node, "group": each.group, "stage": each.stage, "since": each.started,
             "reason": each.reason, "forced": each.forced}
            for node, each in sorted(memory.drains.items())
        ],
        "bookings": [
            {"gang": gang, "machines": len(each.machines), "until": each.until}
            for gang, each in sorted(memory.bookings.items())
        ],
        "resizes": [
            {"group": group, "at": each.at, "was": each.was, "to": each.to}
            for group, each in sorted(memory.resizes.items(), key=lambda item: -item[1].at)
        ],
        "idle": len(memory.idle),
    }  # fmt: skip


def _problems(found: Mapping[str, Any], cluster: Cluster) -> list[str]:
    """What prevents it from working, the most severe first."""
    settings = cluster.autoscaler
    if not settings.enabled:
        return ["disabled in the spec: autoscaler.enabled"]
    if settings.image is None:
        return [
            "it has no image: pools stay as large as they are; docs/autoscaler.md explains how to build one"
        ]
    if found["image"] is None:
        return ["it is not in the cluster: invoke cluster.up"]
    lines = []
    leader = found["leader"]
    if leader is None:
        lines.append("nobody holds its Lease: kubectl logs -n causeway-system deploy/autoscaler")
    elif leader["seconds_ago"] > LATE:
        lines.append(
            f"its Lease was last renewed {leader['seconds_ago']:.0f} seconds ago: no replica is active"
        )
    if found["replicas"]["ready"] < found["replicas"]["wanted"]:
        lines.append(f"{found['replicas']['ready']} of {found['replicas']['wanted']} replicas are ready")
    if found["image"] != settings.image:
        lines.append(f"{found['image']} runs, the spec says {settings.image}: invoke cluster.up")
    return lines


def _tell(found: Mapping[str, Any]) -> None:
    leader, replicas = found["leader"], found["replicas"]
    say(f"{found['image'] or 'not deployed'}, {replicas['ready']} of {replicas['wanted']} replicas ready")
    if leader is not None:
        say(f"{leader['holder']} decides; last heard of {leader['seconds_ago']:.0f} s ago")
    if found["dry_run"]:
        say("dry run: it writes nothing")
    say(f"{found['idle']} idle nodes")
    _table(
        ("in back-off", "because", "until", "times"),
        [(e["group"], e["code"], _clock(e["until"]), str(e["times"])) for e in found["backoffs"]],
    )
    _table(
        ("terminating", "stage", "since", "because"),
        [(e["node"], e["stage"], _clock(e["since"]), e["reason"]) for e in found["drains"]],
    )
    _table(
        ("machines kept for", "how many", "until"),
        [(e["gang"], str(e["machines"]), _clock(e["until"])) for e in found["bookings"]],
    )
    _table(
        ("last set", "at", "from", "to"),
        [(e["group"], _clock(e["at"]), str(e["was"]), str(e["to"])) for e in found["resizes"][:10]],
    )


def _table(names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    if rows:
        say()
        say(columns(names, list(rows)))


def _clock(when: float) -> str:
    return f"{datetime.fromtimestamp(when, UTC):%m-%d %H:%M} UTC"
