"""Rights of the conductor of a search (``causeway sweep``), a Job of the namespace with its own account.

It creates trials, which are JobSets, watches them, takes those that a search stops out of their queue (the
policy ``workloads`` lets it change ``spec.active`` alone) and logs to the namespace's workspace of MLflow,
where all that it knows is. Pods, secrets and other people's namespaces are closed to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes import research, rights
from infra.render.kubernetes.manifests import SYSTEM, Documents, Object, joined, of, static
from infra.render.kubernetes.tracking_service import is_served

ACCOUNT: Final = "sweep"
_ROLE: Final = "causeway:sweep"


def objects(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Documents:
    """Nothing where there is no MLflow to keep a search's state, or no image to run its conductor."""
    if cluster.research is None or not cluster.research.tools or not is_served(cluster, outputs):
        return {}
    namespaces = research.namespaces(cluster)
    if not namespaces:
        return {}
    return {
        "rights.yaml": joined([static("sweeps/rights"), [_reading(namespaces)]]),
        "accounts.yaml": [
            each
            for namespace in namespaces
            for each in (
                rights.account(ACCOUNT, namespace),
                _bound(namespace, "ClusterRole", _ROLE, [namespace]),
            )
        ],
    }


def _reading(namespaces: Sequence[str]) -> Object:
    """Trials are made of what the cluster offers when they are."""
    return _bound(SYSTEM, "Role", research.NAME, namespaces)


def _bound(namespace: str, kind: str, role: str, accounts: Sequence[str]) -> Object:
    """What gives the accounts of these namespaces a role in a namespace."""
    subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": each} for each in accounts]
    reference = {"apiGroup": rights.GROUP, "kind": kind, "name": role}
    return of(rights.API, "RoleBinding", ACCOUNT, namespace=namespace, roleRef=reference, subjects=subjects)
