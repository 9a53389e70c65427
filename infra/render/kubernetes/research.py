"""What the researchers' client reads about the cluster, and the identity with which runs access the store.

The ConfigMap ``research`` is all that a client reads of the spec, and every user may read it. Its
``version`` is that of its format: within one version, fields are only added, never removed or redefined.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from infra.catalogue import efa
from infra.catalogue.labels import INTERCONNECT
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.places import Gpus
from infra.model.research import Research
from infra.render.kubernetes import addon_objects, rights, tracking_service
from infra.render.kubernetes.charts.monitoring import GRAFANA_POD, GRAFANA_PORT, NAMESPACE
from infra.render.kubernetes.manifests import SYSTEM, Documents, Object, filled, joined, of, static
from infra.render.kubernetes.tenants import members, role_of, subject
from infra.render.kubernetes.tracking_service import is_served
from infra.render.kubernetes.volumes import claim, home_of, shown_paths

VERSION: Final = 2
NAME: Final = "research"
WORK: Final = "work"
"""The service account in each namespace that may assume the namespace's AWS role."""
AUDIENCE: Final = "sts.amazonaws.com"

RENEWAL: Final = "code-renewal"
"""The service account and the CronJob that prevent code of active runs from expiring."""

BLOCKED: Final = "blocked-runs"
"""The service account and the Deployment that stop runs which cannot start."""

_RBAC: Final = "rbac.authorization.k8s.io"


def objects(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Documents:
    """The ConfigMap and the right to read it; a service account in each namespace and the right to use it."""
    if cluster.research is None:
        return {}
    return {
        "cluster.yaml": list(_contract(cluster, cluster.research, outputs)),
        "accounts.yaml": [
            each
            for namespace in namespaces(cluster)
            for each in _account(cluster, namespace, outputs, _renewer(cluster.research))
        ],
        **_programs(cluster.research.tools),
    }


def _programs(image: str | None) -> Documents:
    """The programs that renew code, and that stop runs which cannot start; nothing without an image."""
    if not image:
        return {}
    return {f"{name}.yaml": filled(f"research/{name}", image=image) for name in ("renewal", "blocked")}


def namespaces(cluster: Cluster) -> tuple[str, ...]:
    """The namespaces of users and groups, whose runs access the store."""
    return tuple(cluster.web_identity.roles) if cluster.web_identity is not None else ()


def _contract(cluster: Cluster, research: Research, outputs: Outputs) -> Iterator[Object]:
    text = _readable(contract(cluster, research, outputs))
    yield of("v1", "ConfigMap", NAME, namespace=SYSTEM, data={"cluster.json": text})
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [NAME], "verbs": ["get"]}]
    yield of(f"{_RBAC}/v1", "Role", NAME, namespace=SYSTEM, rules=rules)
    everybody = [subject(user) for user in cluster.access.users]
    if everybody or research.tools:
        yield _binding(SYSTEM, [*everybody, *_renewer(research)])


def contract(cluster: Cluster, research: Research, outputs: Outputs = NO_OUTPUTS) -> dict[str, Any]:
    """``cluster.json``: JSON values, in the units that their names state. ``roles`` are known after apply."""
    work = cluster.storage.work
    assert work is not None
    return {
        "version": VERSION,
        "cluster": cluster.name,
        "environment": cluster.environment,
        "tools": research.tools,
        "images": {each.name: {"image": each.image, "launcher": each.launcher} for each in research.images},
        "default_image": research.default_image,
        "code": {"limit_mib": research.code_limit_mib, "keep_days": research.code_keep_days},
        "store": {
            "bucket": work.bucket,
            "region": cluster.region(work.site).region,
            "audience": AUDIENCE,
            "roles": {name: outputs.roles[name] for name in namespaces(cluster) if name in outputs.roles},
            "usd_per_gb": research.usd_per_gb,
        },
        "priorities": {
            each.name: {"gpu_classes": list(each.gpu_classes), "default": each.default}
            for each in cluster.kubernetes.priority_classes
        },
        "machines": list(_machines(cluster)),
        "mounts": {
            claim(each.path): {
                "path": None if each.of_people else each.path,
                "read_only": each.read_only,
                "sites": sorted(each.sites),
            }
            for each in shown_paths(cluster)
        },
        # The path of the mount `home` in a namespace; others have none.
        "homes": {user.namespace: home_of(user) for user in cluster.access.users},
        "sites": [*(site.name for site in cluster.sites), *(region.name for region in cluster.regions)],
        "groups": {group.name: group.namespace for group in cluster.access.groups},
        "ssh_nodes": {each.name: list(each.nodes) for each in cluster.access.ssh},
        "dashboards": {"namespace": NAMESPACE, "pod": GRAFANA_POD, "port": GRAFANA_PORT}
        if addon_objects.has_grafana(cluster)
        else None,
        **tracking_service.offer(cluster, outputs),
    }


def _readable(values: Mapping[str, Any]) -> str:
    """JSON with a line per field, and per entry of a list or mapping of objects."""
    lines = []
    for key, value in values.items():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if not any(isinstance(part, dict) for part in parts):
            lines.append(f"  {json.dumps(key)}: {_line(value)}")
            continue
        entries = (
            [f"    {json.dumps(name)}: {_line(part)}" for name, part in value.items()]
            if isinstance(value, dict)
            else [f"    {_line(part)}" for part in value]
        )
        first, last = "{}" if isinstance(value, dict) else "[]"
        lines.append(f"  {json.dumps(key)}: {first}\n" + ",\n".join(entries) + f"\n  {last}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _machines(cluster: Cluster) -> Iterator[Mapping[str, Any]]:
    """The machines that run work, a row per kind: equal nodes of a physical site, instance types of a
    pool."""
    for site in cluster.sites:
        alike = Counter(
            (each.gpus, _frozen(each.allocatable), each.labels.get(INTERCONNECT))
            for each in site.nodes
            if each.runs_pods
        )
        for (gpus, allocatable, interconnect), count in alike.items():
            yield {
                "site": site.name,
                "pool": None,
                "count": count,
                **_shape(gpus, dict(allocatable), interconnect),
                "hourly_price": 0.0,
                "spot_price": None,
            }
    for pool in cluster.pools:
        for group in pool.groups:
            if group.max:
                yield {
                    "site": group.site,
                    "pool": pool.name,
                    "count": group.max,
                    **_shape(pool.gpus, group.allocatable, group.labels.get(INTERCONNECT)),
                    "hourly_price": group.hourly_price,
                    "spot_price": None if pool.market.kind == "on-demand" else group.spot_price,
                }


def _frozen(allocatable: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(allocatable.items()))


def _shape(gpus: Gpus | None, allocatable: Mapping[str, str], interconnect: str | None) -> dict[str, Any]:
    """What pods can use of one machine."""
    gpu_models = None
    if gpus is not None:
        gpu_models = {
            "model": gpus.model,
            "count": gpus.offered or gpus.count,
            "memory_mib": gpus.memory_mib,
            "class": gpus.gpu_class,
            "interconnect": interconnect,
        }
    return {
        "cpu_milli": int(allocatable["cpu"].removesuffix("m")),
        "memory_mib": int(allocatable["memory"].removesuffix("Mi")),
        "gpus": gpu_models,
        **({"efa": _fabric(allocatable)} if efa.RESOURCE in allocatable else {}),
    }


def _fabric(allocatable: Mapping[str, str]) -> dict[str, int]:
    return {
        "adapters": int(allocatable[efa.RESOURCE]),
        "huge_pages_mib": int(allocatable[efa.HUGE_PAGES_RESOURCE].removesuffix("Mi")),
    }


# -- Who may be the service account `work` ----------------------------------------------------------------


def _account(
    cluster: Cluster, namespace: str, outputs: Outputs, renewer: Sequence[dict[str, str]]
) -> Iterator[Object]:
    """The account, without an automatically mounted token, and the right of the namespace's users to request
    one.

    They may start pods with it anyway. AWS accepts a token for at most an hour, and a user who is removed
    from the namespace's bindings cannot get another one.
    """
    yield of(
        "v1",
        "ServiceAccount",
        WORK,
        namespace=namespace,
        annotations=role_of(namespace, outputs),
        automountServiceAccountToken=False,
    )
    tokens = {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [WORK]}
    yield of(f"{_RBAC}/v1", "Role", WORK, namespace=namespace, rules=[{**tokens, "verbs": ["create"]}])
    people = [subject(user) for user in cluster.access.users if user.namespace == namespace]
    for group in cluster.access.groups:
        if group.namespace == namespace:
            people += [subject(user) for user in members(cluster, group)]
    if people or renewer:
        yield _binding(namespace, [*people, *renewer], WORK)


def _binding(namespace: str, who: Sequence[dict[str, str]], role: str = NAME) -> Object:
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": role}
    return of(f"{_RBAC}/v1", "RoleBinding", role, namespace=namespace, roleRef=reference, subjects=list(who))


def _renewer(research: Research) -> list[dict[str, str]]:
    """The account that renews code, as a binding's subject; empty if the spec names no image for it."""
    account = {"kind": "ServiceAccount", "name": RENEWAL, "namespace": SYSTEM}
    return [account] if research.tools else []


CONDUCTOR: Final = "sweep"
_CONDUCTOR_ROLE: Final = "causeway:sweep"


def sweeps(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Documents:
    """Rights of the controller of a search (``causeway sweep``), a Job in the namespace with its own
    account.

    It creates trials, which are JobSets, watches them, suspends those that a search stops (the policy
    ``workloads`` allows it to change ``spec.active`` only), and logs to the namespace's MLflow workspace,
    which holds all of its state. It has no access to pods, secrets and other namespaces.

    Empty without MLflow, which keeps a search's state, or without an image to run it.
    """
    if cluster.research is None or not cluster.research.tools or not is_served(cluster, outputs):
        return {}
    accounts = namespaces(cluster)
    if not accounts:
        return {}
    return {
        "rights.yaml": joined([static("sweeps/rights"), [_conductor_reading(accounts)]]),
        "accounts.yaml": [
            each
            for namespace in accounts
            for each in (
                rights.account(CONDUCTOR, namespace),
                _conductor_bound(namespace, "ClusterRole", _CONDUCTOR_ROLE, [namespace]),
            )
        ],
    }


def _conductor_reading(namespaces: Sequence[str]) -> Object:
    """The right to read the cluster's offer, from which trials are created."""
    return _conductor_bound(SYSTEM, "Role", NAME, namespaces)


def _conductor_bound(namespace: str, kind: str, role: str, accounts: Sequence[str]) -> Object:
    """A binding that grants the accounts of these namespaces a role in a namespace."""
    subjects = [{"kind": "ServiceAccount", "name": CONDUCTOR, "namespace": each} for each in accounts]
    reference = {"apiGroup": rights.GROUP, "kind": kind, "name": role}
    return of(rights.API, "RoleBinding", CONDUCTOR, namespace=namespace, roleRef=reference, subjects=subjects)
