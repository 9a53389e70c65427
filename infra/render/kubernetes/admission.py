"""Validating admission policies, each with its binding; the kinds with pods in them that they are about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from infra.render.kubernetes.manifests import Object, of

_API: Final = "admissionregistration.k8s.io/v1"

SYSTEM: Final = (
    "request.userInfo.username.startsWith('system:')"
    " && !request.userInfo.username.startsWith('system:serviceaccount:' + request.namespace + ':')"
)
"""Whether Kubernetes' own parts or a controller ask, in CEL; a pod of the namespace is neither."""

PODS: Final[Object] = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}
EPHEMERAL: Final[Object] = {**PODS, "operations": ["UPDATE"], "resources": ["pods/ephemeralcontainers"]}
"""Containers that are added to a pod that is there already."""
WORK: Final[tuple[Object, ...]] = tuple(
    {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["CREATE", "UPDATE"],
        "resources": list(resources),
    }
    for group, version, resources in (
        ("batch", "v1", ("jobs", "cronjobs")),
        ("apps", "v1", ("deployments", "statefulsets", "replicasets")),
        ("jobset.x-k8s.io", "v1alpha2", ("jobsets",)),
    )
)
"""What controllers make pods of."""


def pod_specs(work: str) -> str:
    """In CEL: the list of pod specs in an object of `PODS` or `WORK`.

    ``work``: the object, as ``dyn``: with a type for each kind, those of the others would be misread.
    """
    return (
        f"{work}.kind == 'Pod' ? [{work}.spec]"
        f" : {work}.kind == 'CronJob' ? [{work}.spec.jobTemplate.spec.template.spec]"
        f" : {work}.kind == 'JobSet' ? {work}.spec.replicatedJobs.map(r, r.template.spec.template.spec)"
        f" : [{work}.spec.template.spec]"
    )


def validating(
    name: str,
    rules: Sequence[Object],
    validations: Sequence[Object],
    *,
    namespaces: Object,
    variables: Sequence[Object] = (),
) -> list[Object]:
    """A policy that denies what fails a validation, and its binding to the selected namespaces.

    Args:
        name: Of both objects.
        rules: ``resourceRules``: which requests it applies to.
        validations: CEL expressions with their messages.
        namespaces: A label selector.
        variables: CEL variables.
    """
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": list(rules)},
        **({"variables": list(variables)} if variables else {}),
        "validations": [{**each, "reason": "Forbidden"} for each in validations],
    }
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": namespaces},
    }
    return [
        of(_API, "ValidatingAdmissionPolicy", name, spec=spec),
        of(_API, "ValidatingAdmissionPolicyBinding", name, spec=binding),
    ]
