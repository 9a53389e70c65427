"""Image layers of neighbours are for the node's own containerd: the mirror has no port on every machine.

Spegel's chart makes a Service of type NodePort, whatever its values say, and Kubernetes gives it a port
between 30000 and 32767 on all machines. Nobody uses it: containerd asks the pod of its node, at the node's
loopback address (``nodes.py``). So the API server makes a plain Service of it.
"""

from __future__ import annotations

from typing import Final

from infra.catalogue.labels import OURS
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, Object, mutating_api, of

ADDON: Final = "registry-mirror"
_SERVICES: Final[Object] = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["services"],
}


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """The policy, before the chart comes; nothing where the mirror is off."""
    addon = cluster.kubernetes.addon(ADDON)
    if addon is None or addon.chart is None:
        return {}
    name, api = f"mirror-inside.{OURS}", mutating_api(cluster.kubernetes.version)
    inside = "JSONPatch{op: 'replace', path: '/spec/type', value: 'ClusterIP'}"
    # What Kubernetes adds to that type, and refuses in another.
    policy = (
        "(has(object.spec.externalTrafficPolicy)"
        " ? [JSONPatch{op: 'remove', path: '/spec/externalTrafficPolicy'}] : [])"
    )
    ports = (
        "lists.range(size(object.spec.ports)).filter(i, has(object.spec.ports[i].nodePort))"
        ".map(i, JSONPatch{op: 'remove', path: '/spec/ports/' + string(i) + '/nodePort'})"
    )
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [_SERVICES]},
        "matchConditions": [{"name": "node-port", "expression": "object.spec.type == 'NodePort'"}],
        "reinvocationPolicy": "IfNeeded",
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{inside}] + {policy} + {ports}"}}
        ],
    }
    where = {"matchLabels": {"kubernetes.io/metadata.name": addon.chart.namespace}}
    binding = {"policyName": name, "matchResources": {"namespaceSelector": where}}
    return {
        "services.yaml": [
            of(api, "MutatingAdmissionPolicy", name, spec=spec),
            of(api, "MutatingAdmissionPolicyBinding", name, spec=binding),
        ]
    }
