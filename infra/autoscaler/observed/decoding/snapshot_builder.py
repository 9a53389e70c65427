"""What is known of everything → one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from infra.autoscaler.observed.decoding import facts, gangs, kueue
from infra.autoscaler.observed.decoding.objects import FAULT
from infra.autoscaler.observed.snapshot import Attachments, GroupState, NodeTerm, Pod, Snapshot

_LAG: Final = 60.0
"""Seconds after a pod was made in which its Job is sure to be seen, whatever happens to a watch."""


def snapshot(
    caches: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, GroupState],
    errors: Mapping[str, str],
    prices: Mapping[str, float],
    now: float,
    faults: Mapping[str, str] | None = None,
    provisioning_class: str | None = None,
) -> Snapshot:
    """All that one loop knows.

    ``caches``: kind → key → object, as ``Decoder`` made them; a kind that the cluster does not have may be
    missing. ``faults``: ``Pod/ns/name`` → why it was left out. ``provisioning_class``: of requests for us;
    None for all of them.
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
    """Pods that are seen before the Job, or the JobSet, that they are of: each kind has a watch of its own,
    and one may lag. Alone they would pass for single pods, and a gang would be started in part: they are
    no work yet, for as long as a watch may take to come back."""
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
    """Where each claim's volume is, or may be made. A claim that waits for somebody else (for its volume to
    be made, wherever that will be) is not among them: its pods can't be placed yet."""
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
    volume by the driver's name for it; while there is no volume, the claim itself.

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
    """The default storage class; empty without one."""
    return next((name for name, each in sorted(classes.items()) if each.default), "")


def _stood_in(pods: list[Pod]) -> dict[str, str]:
    """The faults of pods that hold a node all the same."""
    return {
        f"Pod/{each.namespace}/{each.name}": each.annotations[FAULT]
        for each in pods
        if each.annotations and FAULT in each.annotations
    }
