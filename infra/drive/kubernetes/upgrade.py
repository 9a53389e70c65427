"""Upgrades to the next minor version: what prevents it, and whether the cluster is as healthy as before after
each step.

Kubernetes, "Version Skew Policy": the API servers go first, a minor at a time; a kubelet may be up to
three minors older than its API server, never newer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from infra.drive.kubernetes import access, certificates, status
from infra.drive.kubernetes.access import Endpoint
from infra.drive.kubernetes.api import Api, ApiError, AwayError
from infra.drive.kubernetes.apply import MANAGED_BY, OURS
from infra.drive.kubernetes.certificates import Pair
from infra.drive.kubernetes.kubectl import Kubectl, at_least, minor
from infra.drive.kubernetes.nodes import blockers
from infra.drive.kubernetes.status import Member, Node

SKEW: Final = 3
"""Minor versions that a kubelet may be older than its API server."""

USER: Final = "causeway:upgrade"
"""The user with the rights to drain a node (infra.render.kubernetes.access)."""

LIFE: Final = timedelta(hours=3)

RECIPE: Final = "recipe[kubernetes::upgrade]"

_RECORD: Final = "/api/v1/namespaces/kube-system/configmaps"
_NAME: Final = "causeway-upgrade"

_DEPRECATED: Final = re.compile(
    r"^apiserver_requested_deprecated_apis\{(?P<labels>[^}]*)\}\s+(?P<value>\S+)$", re.M
)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Plan:
    """What an upgrade would do."""

    now: str
    """The API server's version."""
    to: str
    """A release, ``1.37.1``, or a minor, ``1.37``."""
    behind: tuple[Node, ...]
    """Nodes that are still at an older version."""
    refused: tuple[str, ...]
    """Reasons why the upgrade must not begin."""
    warnings: tuple[str, ...]

    @property
    def done(self) -> bool:
        return not self.behind and minor(self.now) == minor(self.to) and at_least(self.now, self.to)


def plan(api: Api, kubectl: Kubectl, to: str, unlisted: Iterable[str] = ()) -> Plan:
    """Plan an upgrade from the cluster's state. Changes nothing. ``unlisted``: components not known to work
    with ``to``, one sentence each."""
    now = status.version(api)
    nodes = status.nodes(api)
    nodes = [each for each in nodes if each.version]  # others have not joined yet
    behind = tuple(each for each in nodes if not at_least(each.version, to))
    refused = [*_skew(now, to, nodes), *_unwell(api, kubectl, nodes)]
    warnings = [*unlisted]
    warnings += [f"{each} is still in use, and {to} removed it" for each in removed(api, to)]
    for node in behind:
        warnings += [f"{node.name}: a drain waits for {each}" for each in blockers(api, node.name)]
    return Plan(now, to, behind, tuple(refused), tuple(warnings))


def _skew(now: str, to: str, nodes: Sequence[Node]) -> list[str]:
    step = minor(to)[1] - minor(now)[1]
    if minor(to)[0] != minor(now)[0] or step < 0:
        return [f"the cluster is at {now}: it cannot be downgraded to {to}"]
    if step > 1:
        between = f"{minor(now)[0]}.{minor(now)[1] + 1}"
        return [f"the cluster is at {now}: upgrade one minor at a time, to {between} first"]
    return [
        f"{each.name} is at {each.version}: a kubelet may be {SKEW} minors older than {to}, no more"
        for each in nodes
        if minor(to)[1] - minor(each.version)[1] > SKEW
    ]


def _unwell(api: Api, kubectl: Kubectl, nodes: Sequence[Node]) -> list[str]:
    """Faults that must be fixed first: if a master is unavailable, none can take over while another
    restarts."""
    found = [
        f"the master {each.name} is {each.state}" for each in nodes if each.master and each.state != "ready"
    ]
    members = status.etcd(api, kubectl)
    if not isinstance(members, str):
        found += _etcd_faults(members)
    return found


def _etcd_faults(members: Sequence[Member]) -> list[str]:
    found = [f"etcd on {each.name} is unhealthy" for each in members if not each.healthy]
    return found if any(each.leader for each in members) else [*found, "etcd has no leader"]


def removed(api: Api, to: str) -> list[str]:
    """Requested APIs that ``to`` no longer serves, as counted by the API server since it started (metric
    ``apiserver_requested_deprecated_apis``)."""
    found = set()
    for row in _DEPRECATED.finditer(api.text("/metrics")):
        labels = dict(_LABEL.findall(row["labels"]))
        release = labels.get("removed_release", "")
        if release and minor(release) <= minor(to):
            found.add(f"{labels['group'] or 'core'}/{labels['version']} {labels['resource']}")
    return sorted(found)


# -- How it was before -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Before:
    """The cluster's state when the upgrade began: faults that existed then are not blamed on the upgrade."""

    to: str
    crashing: frozenset[str]
    pending: frozenset[str]
    away: frozenset[str]
    """Nodes that were not ready."""
    cordoned: frozenset[str]


def remembered(api: Api, to: str) -> Before | None:
    """The recorded state of an unfinished upgrade to the same version; None if there is none."""
    found = api.find(f"{_RECORD}/{_NAME}")
    try:
        kept = json.loads((found or {})["data"]["before"])
        if kept["to"] != to:
            return None
        return Before(to, *(frozenset(kept[name]) for name in ("crashing", "pending", "away", "cordoned")))
    except (KeyError, ValueError, TypeError):
        return None


def remember(api: Api, to: str) -> Before:
    """Record the current state in the cluster, so that anyone can continue the upgrade."""
    nodes = status.nodes(api)
    found = Before(
        to,
        status.crashing(api),
        status.pending(api),
        frozenset(each.name for each in nodes if not each.ready),
        frozenset(each.name for each in nodes if each.cordoned),
    )
    kept = {
        "to": to,
        **{
            name: sorted(value)
            for name, value in (
                ("crashing", found.crashing), ("pending", found.pending), ("away", found.away),
                ("cordoned", found.cordoned),
            )
        },
    }  # fmt: skip
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _NAME, "namespace": "kube-system", "labels": {MANAGED_BY: OURS}},
        "data": {"before": json.dumps(kept)},
    }
    api.delete(f"{_RECORD}/{_NAME}")
    api.create(_RECORD, body)
    return found


def forget(api: Api) -> None:
    """Delete the record: the upgrade is complete."""
    api.delete(f"{_RECORD}/{_NAME}")


# -- Gates -------------------------------------------------------------------------------------------------


def faults(api: Api, kubectl: Kubectl, before: Before, moved: Collection[str]) -> list[str]:
    """What is worse than before. ``moved``: the nodes that must be ready at the new version."""
    try:
        if not api.ready():
            return ["the API is not ready"]
        nodes = {each.name: each for each in status.nodes(api)}
        found = []
        for name in moved:
            node = nodes.get(name)
            if node is None:
                found.append(f"{name} is no longer a node")
            elif not at_least(node.version, before.to):
                found.append(f"{name} is still at {node.version}")
            elif name not in before.away and not node.ready:
                found.append(f"{name} is not ready")
            elif name not in before.cordoned and node.cordoned:
                found.append(f"{name} is still cordoned")
        found += [
            f"{each.name} is not ready any more"
            for each in nodes.values()
            if not each.ready and each.name not in before.away and each.name not in moved
        ]
        members = status.etcd(api, kubectl)
        if not isinstance(members, str):
            found += _etcd_faults(members)
        found += [
            f"the pod {each} is in a crash loop" for each in sorted(status.crashing(api) - before.crashing)
        ]
        # Pods come and go: only an increase of pending ones matters.
        waiting = status.pending(api) - before.pending
        if len(waiting) > max(2, len(before.pending)):
            found.append(f"{len(waiting)} pods wait for a node that did not wait before")
    except (ApiError, AwayError) as problem:
        return [str(problem)]
    return found


def settled(
    look: Callable[[], list[str]], *, seconds: float, beat: float, clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> list[str]:  # fmt: skip
    """Repeat until there are no faults; returns those that remain at the timeout."""
    deadline = clock() + seconds
    while found := look():
        if clock() >= deadline:
            break
        sleep(beat)
    return found


def credentials(where: Endpoint, authority: Pair, now: datetime) -> bytes:
    """The kubeconfig with which a worker drains itself (``kubernetes-upgrade.conf``); valid for some
    hours."""
    import base64

    pair = certificates.client(authority, USER, [], now, LIFE)
    document = access.kubeconfig(
        where,
        authority.certificate,
        cluster="cluster",
        user=USER,
        credentials={
            "client-certificate-data": base64.b64encode(pair.certificate.encode()).decode(),
            "client-key-data": base64.b64encode(pair.key.encode()).decode(),
        },
    )
    return (json.dumps(document, indent=1) + "\n").encode()
