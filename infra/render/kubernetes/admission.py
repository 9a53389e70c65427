"""Validating admission policies, each with its binding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from infra.render.kubernetes.manifests import Object, of

_API: Final = "admissionregistration.k8s.io/v1"


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
