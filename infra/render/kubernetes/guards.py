"""What people with rights in a namespace may still not do, as it would be to the loss of others or their own.

A name of an internal page
    leads to that page and to nobody's own: an Ingress of a namespace may not claim it, nor every name.
A claim on the paths of machines
    stays (``volumes.py``): the volume behind it is kept for it alone, and would have to be freed for another.
"""

from __future__ import annotations

import json
from typing import Any, Final

from infra.catalogue.labels import OURS
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import MANAGED_BY, Documents, Object, of
from infra.render.kubernetes.tenants import OF_TENANTS

_API: Final = "admissionregistration.k8s.io/v1"


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``names.yaml`` and ``claims.yaml``."""
    return {"names.yaml": _names(cluster), "claims.yaml": _claims(cluster)}


def _names(cluster: Cluster) -> list[Object]:
    ingress = cluster.kubernetes.ingress
    if ingress is None:
        return []
    taken = json.dumps(sorted({ingress.fqdn, *(page.fqdn for page in ingress.pages)}))
    return _policy(
        f"names-of-pages.{OURS}",
        {
            "apiGroups": ["networking.k8s.io"],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["ingresses"],
        },
        "!has(object.spec.defaultBackend) && has(object.spec.rules) && object.spec.rules.all(r,"
        f" has(r.host) && !r.host.startsWith('*') && !(r.host in {taken}))",
        "an Ingress names the hosts that it serves, one by one, and none of the cluster's own pages",
    )


def _claims(cluster: Cluster) -> list[Object]:
    if not any(cluster.storage.mounts.values()):
        return []
    (label, value), *_ = MANAGED_BY.items()
    return _policy(
        f"claims-on-paths.{OURS}",
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["DELETE"],
            "resources": ["persistentvolumeclaims"],
        },
        # The cluster's own controllers may, as a namespace ends with its claims; so may who could free it.
        "request.userInfo.username.startsWith('system:')"
        " || authorizer.group('').resource('persistentvolumes').check('delete').allowed()"
        " || !has(oldObject.metadata.labels)"
        f" || !('{label}' in oldObject.metadata.labels)"
        f" || oldObject.metadata.labels['{label}'] != '{value}'",
        "this claim shows a path of the machines, and is made once: delete files in it rather than the claim",
    )


def _policy(name: str, rule: dict[str, Any], expression: str, message: str) -> list[Object]:
    """A rule of people's namespaces, in force."""
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [rule]},
        "validations": [{"expression": expression, "message": message, "reason": "Forbidden"}],
    }
    bound = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": OF_TENANTS},
    }
    return [
        of(_API, "ValidatingAdmissionPolicy", name, spec=spec),
        of(_API, "ValidatingAdmissionPolicyBinding", name, spec=bound),
    ]
