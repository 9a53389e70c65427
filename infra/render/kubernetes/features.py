"""What Node Feature Discovery makes of machines' reports: the taint of nodes whose cards are sick.

A kubelet may not taint its own node (admission plugin NodeRestriction), and node-problem-detector taints
none. The machine's own check writes a file, the agent on the node reports it, and Node Feature Discovery's
master, which alone may change nodes, sets the taint and takes it away. An agent may report of its own node
and of no other.
"""

from __future__ import annotations

from typing import Final

from infra.catalogue.labels import GPU_SICK
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, Object, of

_ADDON: Final = "node-feature-discovery"
_OWN_NODE: Final = "node-features-of-its-own-node"
_NODE_LABEL: Final = "nfd.node.kubernetes.io/node-name"
_CLAIM: Final = "authentication.kubernetes.io/node-name"
"""The node of the pod that a token was made for (Kubernetes, "Managing Service Accounts", since 1.32)."""


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``rules.yaml`` and ``policy.yaml``; nothing where the add-on is off."""
    if not cluster.kubernetes.has(_ADDON):
        return {}
    return {"policy.yaml": _policy(), "rules.yaml": [_rule()]}


def _rule() -> Object:
    return of(
        "nfd.k8s-sigs.io/v1alpha1",
        "NodeFeatureRule",
        "sick-cards",
        spec={
            "rules": [
                {
                    "name": "the machine says that its cards are sick",
                    "taints": [{"key": GPU_SICK, "value": "true", "effect": "NoSchedule"}],
                    "matchFeatures": [
                        {"feature": "local.feature", "matchExpressions": {GPU_SICK: {"op": "IsTrue"}}}
                    ],
                }
            ]
        },
    )


def _policy() -> list[Object]:
    account = f"system:serviceaccount:{_ADDON}:{_ADDON}-worker"
    binding = {"policyName": _OWN_NODE, "validationActions": ["Deny"]}
    return [
        of(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicy",
            _OWN_NODE,
            spec={
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": ["nfd.k8s-sigs.io"],
                            "apiVersions": ["v1alpha1"],
                            "operations": ["CREATE", "UPDATE"],
                            "resources": ["nodefeatures"],
                        }
                    ]
                },
                "matchConditions": [
                    {"name": "an-agent", "expression": f"request.userInfo.username == '{account}'"}
                ],
                "variables": [
                    {
                        "name": "node",
                        "expression": f"request.userInfo.extra[?'{_CLAIM}'].orValue([''])[0]",
                    }
                ],
                "validations": [
                    {
                        "expression": "variables.node != '' && "
                        f"object.metadata.?labels[?'{_NODE_LABEL}'].orValue('') == variables.node",
                        "message": "an agent reports of the node that it runs on, and of no other",
                    }
                ],
            },
        ),
        of(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
            _OWN_NODE,
            spec=binding,
        ),
    ]
