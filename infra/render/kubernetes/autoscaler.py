"""The batch autoscaler: what it is told, what it may do, and where it runs.

It runs on masters, beside the API that it watches, and takes their instance role. The metadata service
answers the machine and no pod behind its bridge, so it is on the machine's network. Names it asks of whom its
machine asks: what scales the cluster must not wait for the cluster's own DNS.

A replica a master, two at most; the one with the Lease works.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.machines import NodeGroup, NodePool
from infra.render.kubernetes import rights
from infra.render.kubernetes.charts.release import ON_MASTERS
from infra.render.kubernetes.manifests import SYSTEM, Documents, Object, of
from infra.render.kubernetes.queues import PROVISIONING_CLASS
from infra.render.kubernetes.scaling import has_pools, is_scaled
from infra.render.kubernetes.tenants import subject

NAME: Final = "autoscaler"
LEASE: Final = "autoscaler"
MEMORY: Final = "autoscaler-memory"
"""The ConfigMap that it keeps."""
AVAILABILITY: Final = "availability"
"""The ConfigMap that it writes for people: what is free, and who waits for what."""
NOTICES: Final = "autoscaler-notices"
"""The Secret that ``invoke cluster.up`` brings: ``slack``, a token, and ``webhook``, an address."""
PORT: Final = 10258
"""Of its figures and probes: the one of a cloud controller manager, which is not here. Masters reach it on
each other, like those of the other controllers (``modules/network/security_groups.tf``)."""

_FOLDER: Final = "/etc/autoscaler"
_APP: Final = {"app.kubernetes.io/name": NAME}
_USER: Final = 65532
"""Of the image."""
_RBAC: Final = "rbac.authorization.k8s.io"
_ROLE: Final = "causeway:autoscaler"
_GROUP: Final = "autoscaling.x-k8s.io"
_LOOK: Final = ("list", "watch")


def objects(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Documents:
    """``kinds.yaml``, and where it runs its rights, its configuration and the controller.

    The kind is there before Kueue is, which looks for it once, when it starts.
    """
    if not has_pools(cluster):
        return {}
    kinds = {"kinds.yaml": [_requests()]}
    if not is_scaled(cluster):
        return kinds
    config = configuration(cluster, outputs)
    return {
        **kinds,
        "rights.yaml": [*_rights(), *_readers(cluster)],
        "configuration.yaml": [
            of("v1", "ConfigMap", NAME, namespace=SYSTEM, labels=_APP, data={"config.json": config})
        ],
        "controller.yaml": [_controller(cluster, config)],
    }


# -- What it is told ----------------------------------------------------------------------------------------


def configuration(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> str:
    """``config.json``: infra.autoscaler.config.Config, a setting a line and a group a line."""
    settings = cluster.autoscaler
    told = {
        "environment": cluster.environment,
        "cluster": cluster.name,
        "regions": {region.name: region.region for region in cluster.regions},
        "dry_run": settings.dry_run,
        "interval": settings.interval,
        "idle": settings.idle,
        "boot_timeout": settings.boot_timeout,
        "spare": dict(settings.spare),
        "max_hourly_cost": settings.max_hourly_cost,
        "max_scale_in_percent": settings.max_scale_in_percent,
        "max_cluster_scale_in_percent": settings.max_cluster_scale_in_percent,
        "stop_above_unready_percent": settings.stop_above_unready_percent,
        "backoff_min": settings.backoff_min,
        "backoff_max": settings.backoff_max,
        **({"min_priority": settings.min_priority} if settings.min_priority is not None else {}),
        "booking": settings.booking,
        "quotas": {region: dict(limits) for region, limits in settings.quotas.items()},
        "slack": settings.slack,
        "webhook": settings.webhook is not None,
        "namespace": SYSTEM,
        "provisioning_class": PROVISIONING_CLASS,
    }
    lines = [f"  {json.dumps(key)}: {_line(value)}" for key, value in told.items()]
    rows = ",\n".join(f"    {_line(each)}" for each in _groups(cluster, outputs))
    lines.append(f'  "groups": [\n{rows}\n  ]')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _groups(cluster: Cluster, outputs: Outputs) -> Iterator[dict[str, Any]]:
    """In overflow order: regions by the spec's order, in one region pools by priority."""
    order = {region.name: region.order for region in cluster.regions}
    regions = {region.name: region.region for region in cluster.regions}
    pairs = [(pool, group) for pool in cluster.pools for group in pool.groups]
    for pool, group in sorted(pairs, key=lambda pair: (order[pair[1].site], -pair[0].priority, pair[0].name)):
        zones = [outputs.zone(group.site, zone) for zone in group.zones]
        yield _group(pool, group, regions[group.site], order[group.site], zones)


def _group(pool: NodePool, group: NodeGroup, region: str, order: int, zones: list[str]) -> dict[str, Any]:
    return {
        "name": group.name,
        "pool": pool.name,
        "site": group.site,
        "region": region,
        "order": order,
        "priority": pool.priority,
        "min": group.min,
        "max": group.max,
        "zones": zones,
        "types": [msgspec.to_builtins(each) for each in group.types],
        "on_demand_base": pool.market.on_demand_base,
        "on_demand_percent": pool.market.on_demand_percent,
        "labels": dict(group.labels),
        "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in pool.taints],
        "allocatable": amounts(group.allocatable),
        "drain_timeout_seconds": pool.drain_timeout_seconds,
    }


_UNITS: Final = {"Mi": 2**20, "Gi": 2**30}


def amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """Quantities as ``resolve`` writes them, in whole numbers: processors in thousandths, the rest in its own
    unit, bytes of memory and disk."""
    return {name: _amount(name, text) for name, text in quantities.items()}


def _amount(name: str, text: str) -> int:
    if name == "cpu":
        return int(text.removesuffix("m"))
    return int(text.rstrip("MGi")) * _UNITS.get(text.lstrip("0123456789"), 1)


# -- What it may do -----------------------------------------------------------------------------------------


def _rights() -> list[Object]:
    everywhere = [
        # What there is, and what it asks for.
        _rule(
            "",
            ["nodes", "pods", "namespaces", "persistentvolumes", "persistentvolumeclaims", "podtemplates"],
            _LOOK,
        ),
        _rule("apps", ["daemonsets"], _LOOK),
        _rule("batch", ["jobs"], _LOOK),
        _rule("jobset.x-k8s.io", ["jobsets"], _LOOK),
        _rule(
            "kueue.x-k8s.io",
            ["workloads", "resourceflavors", "clusterqueues", "cohorts", "localqueues"],
            _LOOK,
        ),
        _rule("policy", ["poddisruptionbudgets"], _LOOK),
        _rule("scheduling.k8s.io", ["priorityclasses"], _LOOK),
        _rule("scheduling.sigs.k8s.io", ["podgroups"], _LOOK),
        _rule("scheduling.x-k8s.io", ["podgroups"], _LOOK),
        _rule("storage.k8s.io", ["csinodes", "storageclasses"], _LOOK),
        _rule(_GROUP, ["provisioningrequests"], _LOOK),
        # What it looks at again before it writes, and writes.
        _rule("", ["nodes"], ["get", "patch", "delete"]),
        _rule("", ["pods"], ["get", "patch"]),
        _rule("", ["pods/eviction"], ["create"]),
        _rule(_GROUP, ["provisioningrequests"], ["get"]),
        _rule(_GROUP, ["provisioningrequests/status"], ["get", "patch"]),
        _rule("kueue.x-k8s.io", ["resourceflavors"], ["get", "patch"]),
        _rule("events.k8s.io", ["events"], ["create", "patch"]),
    ]
    # Names can't be asked of what is only about to be made (Kubernetes, "Using RBAC Authorization").
    own = [
        _rule("coordination.k8s.io", ["leases"], ["create"]),
        {
            **_rule("coordination.k8s.io", ["leases"], ["get", "patch"]),
            "resourceNames": [LEASE],
        },
        _rule("", ["configmaps"], ["create"]),
        {**_rule("", ["configmaps"], ["get", "patch"]), "resourceNames": [MEMORY, AVAILABILITY]},
    ]
    return [
        of("v1", "ServiceAccount", NAME, namespace=SYSTEM, labels=_APP),
        of(f"{_RBAC}/v1", "ClusterRole", _ROLE, labels=_APP, rules=everywhere),
        _binding("ClusterRoleBinding", "ClusterRole", None),
        of(f"{_RBAC}/v1", "Role", _ROLE, namespace=SYSTEM, labels=_APP, rules=own),
        _binding("RoleBinding", "Role", SYSTEM),
    ]


def _readers(cluster: Cluster) -> Iterator[Object]:
    """People of the spec, who may read what it writes for them, and nothing else of this namespace."""
    everybody = [subject(user) for user in cluster.access.users]
    rules = [{**_rule("", ["configmaps"], ["get"]), "resourceNames": [AVAILABILITY]}]
    if everybody:
        yield from rights.within(SYSTEM, AVAILABILITY, rules, everybody, labels=_APP)


def _rule(group: str, resources: list[str], verbs: list[str] | tuple[str, ...]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def _binding(kind: str, role: str, namespace: str | None) -> Object:
    return of(
        f"{_RBAC}/v1",
        kind,
        _ROLE,
        namespace=namespace,
        labels=_APP,
        roleRef={"apiGroup": _RBAC, "kind": role, "name": _ROLE},
        subjects=[{"kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM}],
    )


# -- Where it runs ------------------------------------------------------------------------------------------


def _controller(cluster: Cluster, config: str) -> Object:
    plane = cluster.control_plane
    return of(
        "apps/v1",
        "Deployment",
        NAME,
        namespace=SYSTEM,
        labels=_APP,
        spec={
            "replicas": min(2, len(plane.masters) if plane is not None else 1),
            "selector": {"matchLabels": _APP},
            # A master has room for one: the old one goes first, and the other goes on.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {
                # It reads its configuration once, when it starts.
                "metadata": {
                    "labels": _APP,
                    "annotations": {"causeway.dev/config": sha256(config.encode()).hexdigest()[:16]},
                },
                "spec": _pod(cluster),
            },
        },
    )


def _pod(cluster: Cluster) -> Object:
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": _APP}}
    return {
        **ON_MASTERS,
        "priorityClassName": "system-cluster-critical",
        "serviceAccountName": NAME,
        "enableServiceLinks": False,
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(cluster)],
        "volumes": [
            {"name": "configuration", "configMap": {"name": NAME}},
            # Where the spec names none, or nobody has brought them yet, there is nothing in it.
            {"name": "notices", "secret": {"secretName": NOTICES, "optional": True, "defaultMode": 0o440}},
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        ],
    }


def _container(cluster: Cluster) -> Object:
    return {
        "name": NAME,
        "image": cluster.autoscaler.image,
        "args": ["run", "--config", f"{_FOLDER}/config/config.json"],
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        "livenessProbe": {
            **_probe("/healthz"),
            "initialDelaySeconds": 60,
            "periodSeconds": 30,
            "failureThreshold": 4,
        },
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 10},
        # 30,000 pods take a core for some seconds, and less than 1 GiB.
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "configuration", "mountPath": f"{_FOLDER}/config", "readOnly": True},
            {"name": "notices", "mountPath": f"{_FOLDER}/notices", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
        ],
    }


def _probe(path: str) -> Object:
    return {"httpGet": {"path": path, "port": "metrics"}, "timeoutSeconds": 5}


# -- The kind that Kueue asks by ----------------------------------------------------------------------------


def _requests() -> Object:
    """``ProvisioningRequest`` (autoscaling.x-k8s.io/v1), as the Cluster Autoscaler documents it: what a job
    needs in all, asked for at once."""
    plural = "provisioningrequests"
    return of(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        f"{plural}.{_GROUP}",
        # The API server takes names below k8s.io with this alone (KEP 2337).
        annotations={"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"},
        spec={
            "group": _GROUP,
            "names": {
                "kind": "ProvisioningRequest",
                "listKind": "ProvisioningRequestList",
                "plural": plural,
                "singular": "provisioningrequest",
                "shortNames": ["provreq", "provreqs"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": _schema()},
                    "additionalPrinterColumns": [
                        _column("Class", ".spec.provisioningClassName"),
                        _column("Accepted", _status_of("Accepted")),
                        _column("Provisioned", _status_of("Provisioned")),
                        _column("Failed", _status_of("Failed")),
                        {**_column("Age", ".metadata.creationTimestamp"), "type": "date"},
                    ],
                }
            ],
        },
    )


def _schema() -> Object:
    text = {"type": "string"}
    never = [{"rule": "self == oldSelf", "message": "it can't be changed: make another request"}]
    set_of_pods = {
        "type": "object",
        "required": ["count", "podTemplateRef"],
        "properties": {
            "count": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 16384},
            "podTemplateRef": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {**text, "maxLength": 253}},
            },
        },
    }
    spec = {
        "type": "object",
        "required": ["podSets", "provisioningClassName"],
        "properties": {
            "podSets": {
                "type": "array",
                "minItems": 1,
                "maxItems": 32,
                "items": set_of_pods,
                "x-kubernetes-validations": never,
            },
            "provisioningClassName": {
                **text,
                "maxLength": 253,
                "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
                "x-kubernetes-validations": never,
            },
            "parameters": {
                "type": "object",
                "maxProperties": 100,
                "additionalProperties": {**text, "maxLength": 255},
                "x-kubernetes-validations": never,
            },
        },
    }
    condition = {
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {**text, "format": "date-time"},
            "message": {**text, "maxLength": 32768},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "reason": {
                **text,
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "status": {**text, "enum": ["True", "False", "Unknown"]},
            "type": {**text, "maxLength": 316},
        },
    }
    status = {
        "type": "object",
        "properties": {
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
            "provisioningClassDetails": {
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {**text, "maxLength": 32768},
            },
        },
    }
    return {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": text,
            "kind": text,
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }


def _column(name: str, path: str) -> Object:
    return {"name": name, "type": "string", "jsonPath": path}


def _status_of(condition: str) -> str:
    return f'.status.conditions[?(@.type=="{condition}")].status'
