"""What Node Feature Discovery makes of machines' reports: taints of nodes whose cards are sick, or whose
scratch space is not mounted.

A kubelet may not taint its own node (admission plugin NodeRestriction), and node-problem-detector taints
none. The machine's own check writes a file, the agent on the node reports it, and Node Feature Discovery's
master, which alone may change nodes, sets the taint and takes it away. An agent may report of its own node
and of no other.
"""

from __future__ import annotations

from typing import Final

from infra.catalogue.labels import GPU_SICK, SCRATCH_MISSING
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, Object, of

_RULES: Final = (
    ("sick-cards", "its cards are sick", GPU_SICK),
    ("missing-scratch", "its scratch space is not mounted", SCRATCH_MISSING),
)
_ADDON: Final = "node-feature-discovery"
_OWN_NODE: Final = "node-features-of-its-own-node"
_NODE_LABEL: Final = "nfd.node.kubernetes.io/node-name"
_CLAIM: Final = "authentication.kubernetes.io/node-name"
"""The node of the pod that a token was made for (Kubernetes, "Managing Service Accounts", since 1.32)."""


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``rules.yaml`` and ``policy.yaml``; nothing where the add-on is off."""
    if not cluster.kubernetes.has(_ADDON):
        return {}
    return {"policy.yaml": _policy(), "rules.yaml": [_rule(*each) for each in _RULES]}


def _rule(name: str, says: str, key: str) -> Object:
    return of(
        "nfd.k8s-sigs.io/v1alpha1",
        "NodeFeatureRule",
        name,
        spec={
            "rules": [
                {
                    "name": f"the machine says that {says}",
                    "taints": [{"key": key, "value": "true", "effect": "NoSchedule"}],
                    "matchFeatures": [
                        {"feature": "local.feature", "matchExpressions": {key: {"op": "IsTrue"}}}
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
