"""`invoke cluster.status`: the status of the whole cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from infra.commands import cluster_access
from infra.commands.cluster_access import Reach
from infra.commands.environment import Project
from infra.commands.terminal import columns, note, say, say_json
from infra.drive import clock
from infra.errors import CausewayError

SOON: Final = 30
"""Days before its expiry from which a certificate is reported."""


def status(project: Project, *, json: bool) -> int:
    """Print the status; 1 if there are problems."""
    if cluster_access.previewed(project):
        from infra.commands.cluster import previewing

        return previewing.status(project, json=json)
    with cluster_access.reach(project) as there:
        found = gather(there)
    if json:
        say_json(found)
        return 1 if found["problems"] else 0
    _tell(found)
    for problem in found["problems"]:
        note(f"! {problem}")
    return 1 if found["problems"] else 0


def summary(there: Reach) -> dict[str, Any]:
    """The status with a short text, ``lines``, for the end of other commands."""
    found = gather(there)
    masters = [each for each in found["masters"] if each["state"] == "ready"]
    workers = sum(each["ready"] for each in found["nodes"] if each["pool"] != "masters")
    gpus = sum(each["total"] for each in found["gpus"])
    free = sum(each["free"] for each in found["gpus"])
    up = f"{len(masters)} of {len(found['masters'])} masters, {workers} other nodes ready"
    lines = [f"Kubernetes {found['version']}: {up}; {free} of {gpus} GPUs free."]
    lines += [f"! {each}" for each in found["problems"]]
    return {**found, "lines": lines}


def gather(there: Reach) -> dict[str, Any]:
    """The status of the cluster, as JSON values."""
    from infra.drive.kubernetes import status

    api = there.api
    nodes = status.nodes(api)
    cluster = there.project.cluster
    assert cluster.control_plane is not None
    named = {each.name: each for each in nodes}
    masters = []
    for master in cluster.control_plane.masters:
        node = named.get(master.hostname)
        state = "no node" if node is None else node.state
        masters.append({"name": master.hostname, "state": state, "version": node.version if node else ""})
    found: dict[str, Any] = {
        "version": status.version(api),
        "wanted": cluster.kubernetes.release,
        "masters": masters,
        "etcd": _etcd(there),
        "nodes": status.by_place(nodes),
        "gpus": status.by_gpu(nodes),
        "sick": [{"node": each.name, "why": each.sick} for each in nodes if each.sick],
        "out_of_service": [each.name for each in nodes if each.out_of_service],
        "not_ready": [each.name for each in nodes if not each.ready],
        "addons": _addons(there),
        "unwell": status.unwell(api),
        "snapshot": _snapshot(there),
        "certificates": _certificates(there),
    }
    found["problems"] = _problems(found, cluster.kubernetes.snapshot_seconds)
    return found


def _etcd(there: Reach) -> dict[str, Any]:
    from infra.drive.kubernetes import status

    try:
        members = status.etcd(there.api, there.kubectl)
    except CausewayError as problem:
        members = str(problem)
    if isinstance(members, str):
        return {"members": [], "unknown": members}
    return {"members": [asdict(each) for each in members], "unknown": None}


def _addons(there: Reach) -> list[dict[str, Any]]:
    try:
        found = there.helm.releases()
    except CausewayError as problem:
        note(f"add-ons unknown: {problem}")
        return []
    return [
        {"name": each.name, "namespace": each.namespace, "chart": each.chart, "status": each.status}
        for each in found
    ]


def _snapshot(there: Reach) -> dict[str, Any] | None:
    from infra.drive.kubernetes import status

    noted = status.noted(there.api, "causeway-etcd-snapshot")
    try:
        taken = datetime.fromisoformat(noted["taken"])
        taken = taken if taken.tzinfo else taken.replace(tzinfo=UTC)
    except (KeyError, ValueError):
        return None
    age = (clock.now() - taken).total_seconds()
    return {"name": noted.get("name", ""), "taken": noted["taken"], "age_seconds": round(age)}


def _certificates(there: Reach) -> list[dict[str, Any]]:
    from infra.drive.kubernetes import status

    rows = []
    if ends := status.serving(there.access):
        rows.append({"name": "the API server's", "days": status.days_left(ends)})
    rows.append({"name": "the cluster's authority", "days": status.days_left(there.access.authority.ends)})
    for master, ends_at in sorted(status.noted(there.api, "causeway-certificates").items()):
        try:
            rows.append({"name": f"of {master}", "days": status.days_left(datetime.fromisoformat(ends_at))})
        except (ValueError, TypeError):
            continue
    return rows


def _problems(found: Mapping[str, Any], snapshot_seconds: int) -> list[str]:
    """Problems, the most severe first."""
    from infra.drive.kubernetes.kubectl import at_least, minor

    lines = [f"{each['name']} is {each['state']}" for each in found["masters"] if each["state"] != "ready"]
    members = found["etcd"]["members"]
    lines += [f"etcd at {each['endpoint']} is unhealthy" for each in members if not each["healthy"]]
    if members and not any(each["leader"] for each in members):
        lines.append("etcd has no leader")
    if members and len(members) != len(found["masters"]):
        lines.append(f"etcd has {len(members)} members, and there are {len(found['masters'])} masters")
    masters = {each["name"] for each in found["masters"]}
    lines += [f"the node {name} is not ready" for name in found["not_ready"] if name not in masters]
    lines += [f"{each['node']} is out: {each['why']}" for each in found["sick"]]
    lines += [
        f"{name} is back, and still out of service: invoke cluster.drain {name} --undo"
        for name in found["out_of_service"]
        if name not in found["not_ready"]
    ]
    if minor(found["version"]) != minor(found["wanted"]) or not at_least(found["version"], found["wanted"]):
        lines.append(
            f"the masters are {found['version']}, the spec says {found['wanted']}: invoke cluster.upgrade"
        )
    lines += [
        stayed_behind(each, found["version"])
        for each in found["nodes"]
        if any(behind(version, found["version"]) for version in each["versions"])
    ]
    lines += [
        f"{each['kind']} {each['name']}: {each['available']} of {each['wanted']} available"
        for each in found["unwell"]
    ]
    lines += [
        f"the add-on {each['name']} is {each['status']}"
        for each in found["addons"]
        if each["status"] != "deployed"
    ]
    snapshot = found["snapshot"]
    if snapshot is not None and snapshot["age_seconds"] > 3 * snapshot_seconds:
        lines.append(f"etcd was last copied {_age(snapshot['age_seconds'])} ago")
    lines += [
        f"the certificate {each['name']} ends in {each['days']} days"
        for each in found["certificates"]
        if each["days"] < SOON
    ]
    return lines


def behind(kubelet: str, masters: str) -> bool:
    """Whether a kubelet has an older minor version than the masters."""
    from infra.drive.kubernetes.kubectl import minor

    return bool(kubelet) and minor(kubelet) < minor(masters)


def stayed_behind(row: Mapping[str, Any], masters: str) -> str:
    """A message that nodes have an older minor version, and how they are upgraded.

    ``row``: one of `infra.drive.kubernetes.status.by_place`. Its pool is ``-`` for machines outside of any
    pool.
    """
    pool = row["pool"]
    follow = (
        "invoke cluster.upgrade continues with them"
        if pool in {"-", "masters"}
        else "bake and apply its image, then invoke cluster.upgrade"
    )
    whose = row["site"] if pool == "-" else pool
    versions = " and ".join(row["versions"])
    return f"{row['nodes']} nodes of {whose} are at {versions}, the masters at {masters}: {follow}"


def _tell(found: Mapping[str, Any]) -> None:
    say(f"Kubernetes {found['version']} (the spec: {found['wanted']})")
    say()
    leaders = {each["endpoint"] for each in found["etcd"]["members"] if each["leader"]}
    say(
        columns(
            ("master", "state", "version"), [(e["name"], e["state"], e["version"]) for e in found["masters"]]
        )
    )
    members = found["etcd"]["members"]
    if members:
        well = sum(each["healthy"] for each in members)
        size = max(each["size_mib"] for each in members)
        say(f"etcd: {well} of {len(members)} healthy, leader {', '.join(leaders) or 'none'}, {size} MiB")
    else:
        say(f"etcd: unknown ({found['etcd']['unknown']})")
    snapshot = found["snapshot"]
    say(f"last snapshot: {_age(snapshot['age_seconds']) + ' ago' if snapshot else 'unknown'}")
    _table(
        ("site", "pool", "nodes", "ready", "not ready", "cordoned", "sick", "versions"),
        [
            {**each, "versions": " ".join(each["versions"]), "not ready": each["not_ready"]}
            for each in found["nodes"]
        ],
    )
    _table(("class", "model", "total", "used", "free", "out"), found["gpus"])
    _table(("name", "namespace", "chart", "status"), found["addons"])
    say()
    days = ", ".join(f"{each['name']} {each['days']} days" for each in found["certificates"])
    say(f"certificates: {days}")


def _table(names: tuple[str, ...], rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        say()
        say(columns(names, [tuple(str(row[name]) for name in names) for row in rows]))


def _age(seconds: int) -> str:
    if seconds < 7200:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h" if seconds < 172800 else f"{seconds // 86400} days"
