"""Builds one snapshot from the caches and AWS's state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from infra.autoscaler.observed.decoding import facts, gangs, kueue
from infra.autoscaler.observed.decoding.objects import FAULT
from infra.autoscaler.observed.snapshot import Attachments, GroupState, NodeTerm, Pod, Snapshot

_LAG: Final = 60.0
"""Seconds after a pod's creation by which its Job is certainly seen, even if a watch restarts."""


def snapshot(
    caches: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, GroupState],
    errors: Mapping[str, str],
    prices: Mapping[str, float],
    now: float,
    faults: Mapping[str, str] | None = None,
    provisioning_class: str | None = None,
) -> Snapshot:
    """The snapshot of one loop.

    ``caches``: kind → key → object, from ``Decoder``; kinds that the cluster does not have may be missing.
    ``faults``: ``Pod/ns/name`` → why it was left out. ``provisioning_class``: the class of requests for us;
    None for all.
    """
    pods: list[Pod] = [each for each in caches.get("Pod", {}).values() if not each.over]
    early = _early(caches, pods, now)
    found = gangs.find(caches, [each for each in pods if each.uid not in early], provisioning_class)
    return Snapshot(
        at=now,
        nodes=tuple(caches.get("Node", {}).values()),
        pods=tuple(
            [
                replace(each, gang=None, gated=True)
                if each.uid in early
                else each
                if each.gang == (key := found.keys.get(each.uid))
                else replace(each, gang=key)
                for each in pods
            ]
        ),
        gangs=found.gangs,
        budgets=tuple(caches.get("PodDisruptionBudget", {}).values()),
        daemons=tuple(caches.get("DaemonSet", {}).values()),
        claims=dict(_claims(caches)),
        attachments=_attachments(caches),
        groups=groups,
        errors=errors,
        faults={**(faults or {}), **found.faults, **_stood_in(pods)},
        prices=prices,
        namespaces=caches.get("Namespace", {}),
        flavors=caches.get("ResourceFlavor", {}),
        queues=kueue.find(caches),
    )


def _early(caches: Mapping[str, Mapping[str, Any]], pods: list[Pod], now: float) -> set[str]:
    """Pods that are seen before their Job or JobSet, as each kind has its own watch, which may lag. They
    would count as single pods, and a gang would be started in part: so they are ignored for as long as a
    watch may take to recover."""
    found: set[str] = set()
    jobs, sets = caches.get("Job"), caches.get("JobSet")
    for pod in pods:
        owner = pod.owner
        if pod.node or owner is None or owner.kind != "Job" or now - pod.created >= _LAG:
            continue
        job: facts.Job | None = (jobs or {}).get(f"{pod.namespace}/{owner.name}")
        without = jobs is not None and (job is None or job.uid not in ("", owner.uid))
        name = pod.labels.get(gangs.JOBSET)
        if without or (name and sets is not None and f"{pod.namespace}/{name}" not in sets):
            found.add(pod.uid)
    return found


def _claims(caches: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, tuple[NodeTerm, ...] | None]]:
    """Yield where each claim's volume is, or may be provisioned. Claims that wait for another controller (to
    provision their volume, wherever that will be) are left out: their pods cannot be placed yet."""
    volumes: Mapping[str, facts.Volume] = caches.get("PersistentVolume", {})
    classes: Mapping[str, facts.Storage] = caches.get("StorageClass", {})
    default = _default(classes)
    claims: Mapping[str, facts.Claim] = caches.get("PersistentVolumeClaim", {})
    for key, claim in claims.items():
        if claim.volume:
            if claim.volume in volumes:
                yield key, volumes[claim.volume].terms
            continue
        name = default if claim.storage is None else claim.storage
        storage = classes.get(name)
        if storage is None or not storage.waits:
            continue
        if not storage.static:
            yield key, storage.terms or None
        elif free := [each.terms for each in volumes.values() if each.free and each.storage == name]:
            yield key, () if () in free else tuple(dict.fromkeys(term for terms in free for term in terms))


def _attachments(caches: Mapping[str, Mapping[str, Any]]) -> Attachments:
    """What the scheduler counts against the limits of CSI drivers (plugin ``NodeVolumeLimits``): a claim's
    volume by its id in the driver; without a volume, the claim itself.

    In-tree volumes that are migrated to CSI, and attachments that outlive their pods, are not counted.
    """
    limits = {name: each for name, each in caches.get("CSINode", {}).items() if each}
    if not limits:
        return Attachments()
    drivers = {driver for each in limits.values() for driver in each}
    volumes: Mapping[str, facts.Volume] = caches.get("PersistentVolume", {})
    classes: Mapping[str, facts.Storage] = caches.get("StorageClass", {})
    of_class: dict[str | None, str] = {
        name: each.provisioner for name, each in classes.items() if each.provisioner in drivers
    }
    default = _default(classes)
    if default in of_class:
        of_class[None] = of_class[default]
    claims: dict[str, tuple[str, str]] = {}
    for key, claim in caches.get("PersistentVolumeClaim", {}).items():
        if (volume := volumes.get(claim.volume)) is not None:
            if volume.driver in drivers:
                claims[key] = volume.driver, volume.handle
        elif claim.storage in of_class:
            claims[key] = of_class[claim.storage], f"claim {key}"
    return Attachments(limits, claims, of_class)


def _default(classes: Mapping[str, facts.Storage]) -> str:
    """The default StorageClass; empty if there is none."""
    return next((name for name, each in sorted(classes.items()) if each.default), "")


def _stood_in(pods: list[Pod]) -> dict[str, str]:
    """The faults of invalid pods that occupy a node."""
    return {
        f"Pod/{each.namespace}/{each.name}": each.annotations[FAULT]
        for each in pods
        if each.annotations and FAULT in each.annotations
    }
