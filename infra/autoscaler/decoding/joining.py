"""What is known of everything → one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from infra.autoscaler.decoding import facts, gangs
from infra.autoscaler.decoding.objects import FAULT
from infra.autoscaler.world import GroupState, NodeTerm, Pod, Snapshot


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
    found = gangs.find(caches, pods, provisioning_class)
    return Snapshot(
        at=now,
        nodes=tuple(caches.get("Node", {}).values()),
        pods=tuple(
            [
                each if each.gang == (key := found.keys.get(each.uid)) else replace(each, gang=key)
                for each in pods
            ]
        ),
        gangs=found.gangs,
        budgets=tuple(caches.get("PodDisruptionBudget", {}).values()),
        daemons=tuple(caches.get("DaemonSet", {}).values()),
        claims=dict(_claims(caches)),
        groups=groups,
        errors=errors,
        faults={**(faults or {}), **found.faults, **_stood_in(pods)},
        prices=prices,
        namespaces=caches.get("Namespace", {}),
    )


def _claims(caches: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, tuple[NodeTerm, ...] | None]]:
    """Where each claim's volume is, or may be made. A claim that waits for somebody else (for its volume to
    be made, wherever that will be) is not among them: its pods can't be placed yet."""
    volumes: Mapping[str, facts.Volume] = caches.get("PersistentVolume", {})
    classes: Mapping[str, facts.Storage] = caches.get("StorageClass", {})
    default = next((name for name, each in sorted(classes.items()) if each.default), "")
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


def _stood_in(pods: list[Pod]) -> dict[str, str]:
    """The faults of pods that hold a node all the same."""
    return {
        f"Pod/{each.namespace}/{each.name}": each.annotations[FAULT]
        for each in pods
        if each.annotations and FAULT in each.annotations
    }
