"""As whom pods use files: as their namespace's person or group, and as nobody else.

NFS, EFS and the machines' own paths go by Unix numbers, and a pod may choose its own. So in namespaces of
people and groups

- volumes are of kinds that show nobody else's files: no ``nfs``, no driver's volume in line, no host path;
- who mounts a path of the machines has the numbers of the namespace: what a pod does not say is written into
  it, and another number is refused, in each of its containers and in the templates of its work;
- such containers gain no rights: a program of root's with the setuid bit would leave the number behind;
- groups come from the pod alone (``supplementalGroupsPolicy: Strict``): by default a line of the image's
  ``/etc/group`` makes its user a member of any group (Kubernetes, "Configure a Security Context").

Network policies keep pods from speaking NFS themselves (``namespaces``).
"""

from __future__ import annotations

import json
from typing import Final

from infra.catalogue.labels import OURS
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.admission import EPHEMERAL, PODS, WORK, pod_specs, validating
from infra.render.kubernetes.manifests import Documents, Object, mutating_api, of
from infra.render.kubernetes.tenants import ENFORCE, GIDS, OF_TENANTS, UID
from infra.render.kubernetes.volumes import claims_on_paths

_VOLUMES: Final = (
    "configMap",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
"""Kinds of volumes that people may ask for: those of Pod Security's level ``restricted``, without ``csi``, by
which a driver of NFS mounts whatever the pod names."""


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``volumes.yaml`` and ``numbers.yaml``."""
    claims = claims_on_paths(cluster)
    return {
        "volumes.yaml": _refused("volumes-of-pods", _variables([]), _VOLUMES_ARE_OPEN),
        "numbers.yaml": [
            *_written(cluster, claims),
            *_refused("numbers-of-pods", _variables(claims), _PINNED),
        ]
        if claims
        else [],
    }


# -- What is written into pods -----------------------------------------------------------------------------


def _written(cluster: Cluster, claims: list[str]) -> list[Object]:
    """Into pods alone: work of all kinds comes to them in the end."""
    name = f"numbers-of-pods.{OURS}"
    api = mutating_api(cluster.kubernetes.version)
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [PODS, EPHEMERAL]},
        "matchConditions": [
            {"name": "on-a-path", "expression": _on_a_path("object.spec", json.dumps(claims))}
        ],
        "reinvocationPolicy": "IfNeeded",
        "variables": [
            {
                "name": "own",
                "expression": "has(object.spec.securityContext) ? object.spec.securityContext : {}",
            },
            *_NUMBERS,
        ],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " + ".join(_patches())}}],
    }
    binding = {"policyName": name, "matchResources": {"namespaceSelector": _guarded_namespaces()}}
    return [
        of(api, "MutatingAdmissionPolicy", name, spec=spec),
        of(api, "MutatingAdmissionPolicyBinding", name, spec=binding),
    ]


def _patches() -> list[str]:
    """What is missing, in CEL."""
    pod, context = "object.spec", "/spec/securityContext"
    # A pod that is there already is only given containers.
    new = "request.operation == 'CREATE'"
    found = [_add(f"{new} && !has({pod}.securityContext)", f"'{context}'", "{}")]
    for field, value in (
        ("runAsUser", "variables.uid"),
        ("runAsGroup", "variables.gids[0]"),
        ("supplementalGroups", "variables.gids"),
        ("supplementalGroupsPolicy", "'Strict'"),
    ):
        unsaid = f"!(has({pod}.securityContext) && has({pod}.securityContext.{field}))"
        found.append(_add(f"{new} && {unsaid}", f"'{context}/{field}'", value))
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        each = f"{pod}.{kind}[i]"
        path = f"'/spec/{kind}/' + string(i) + '/securityContext"
        every = f"lists.range(has({pod}.{kind}) ? size({pod}.{kind}) : 0)"
        gains = f"has({each}.securityContext.allowPrivilegeEscalation)"
        bare = f"!has({each}.securityContext)"
        found.append(f"{every}.filter(i, {bare}).map(i, {_patch(path + chr(39), '{}')})")
        what = _patch(f"{path}/allowPrivilegeEscalation'", "false")
        found.append(f"{every}.filter(i, {bare} || !{gains}).map(i, {what})")
    return found


def _add(condition: str, path: str, value: str) -> str:
    return f"({condition} ? [{_patch(path, value)}] : [])"


def _patch(path: str, value: str) -> str:
    return f"JSONPatch{{op: 'add', path: {path}, value: {value}}}"


# -- What is refused ---------------------------------------------------------------------------------------

_NUMBERS: Final[tuple[Object, ...]] = (
    {"name": "uid", "expression": f"int(namespaceObject.metadata.annotations['{UID}'])"},
    {
        "name": "gids",
        "expression": f"namespaceObject.metadata.annotations['{GIDS}'].split(',').map(g, int(g))",
    },
)


def _variables(claims: list[str]) -> list[Object]:
    found = [
        {"name": "work", "expression": "dyn(object)"},
        {"name": "specs", "expression": pod_specs("variables.work")},
    ]
    if not claims:
        return found
    return [
        *found,
        *_NUMBERS,
        {
            "name": "users",
            "expression": f"variables.specs.filter(s, {_on_a_path('s', json.dumps(claims))})",
        },
        {
            "name": "contexts",
            "expression": "variables.users.map(s, has(s.securityContext) ? s.securityContext : {})",
        },
        {
            "name": "containers",
            "expression": "variables.users.map(s, s.containers"
            " + (has(s.initContainers) ? s.initContainers : [])"
            " + (has(s.ephemeralContainers) ? s.ephemeralContainers : [])).flatten()"
            ".map(c, has(c.securityContext) ? c.securityContext : {})",
        },
        # Into templates nothing was written: what they leave out is written into their pods.
        {"name": "whole", "expression": "variables.work.kind == 'Pod'"},
    ]


def _on_a_path(spec: str, claims: str) -> str:
    return (
        f"has({spec}.volumes) && {spec}.volumes.exists(v, has(v.persistentVolumeClaim)"
        f" && v.persistentVolumeClaim.claimName in {claims})"
    )


_VOLUMES_ARE_OPEN: Final[tuple[Object, ...]] = (
    {
        "expression": "variables.specs.all(s, !has(s.volumes) || s.volumes.all(v, "
        + " || ".join(f"has(v.{kind})" for kind in _VOLUMES)
        + "))",
        "message": f"a volume is one of {', '.join(_VOLUMES)}; paths of machines are claims of the namespace",
    },
)

_PINNED: Final[tuple[Object, ...]] = (
    {
        "expression": "(variables.contexts + variables.containers).all(c,"
        " (!has(c.runAsUser) || c.runAsUser == variables.uid)"
        " && (!has(c.runAsGroup) || c.runAsGroup in variables.gids))"
        " && variables.contexts.all(c,"
        " (!has(c.fsGroup) || c.fsGroup in variables.gids)"
        " && (!has(c.supplementalGroups) || c.supplementalGroups.all(g, g in variables.gids))"
        " && (!variables.whole || (has(c.runAsUser) && has(c.runAsGroup))))",
        "messageExpression": "'in this namespace pods with a path of the machines run as user '"
        " + string(variables.uid) + ' with groups ' + variables.gids.map(g, string(g)).join(', ')"
        " + '; what is left out of securityContext is filled in'",
    },
    {
        "expression": "variables.contexts.all(c, has(c.supplementalGroupsPolicy)"
        " ? c.supplementalGroupsPolicy == 'Strict' : !variables.whole)",
        "message": "supplementalGroupsPolicy: Strict for pods with a path of the machines: their groups do"
        " not come from an image",
    },
    {
        "expression": "variables.containers.all(c,"
        " (has(c.allowPrivilegeEscalation) ? !c.allowPrivilegeEscalation : !variables.whole)"
        " && !(has(c.capabilities) && has(c.capabilities.add) && size(c.capabilities.add) > 0))",
        "message": "allowPrivilegeEscalation: false and no further capabilities for containers of pods with a"
        " path of the machines",
    },
)


def _refused(name: str, variables: list[Object], validations: tuple[Object, ...]) -> list[Object]:
    rules = [PODS, EPHEMERAL, *WORK]
    return validating(
        f"{name}.{OURS}", rules, validations, variables=variables, namespaces=_guarded_namespaces()
    )


def _guarded_namespaces() -> Object:
    """Namespaces of people and groups, except those that the spec makes ``privileged``: their pods may become
    root on a node."""
    (tenant,) = OF_TENANTS["matchExpressions"]
    return {"matchExpressions": [tenant, {"key": ENFORCE, "operator": "NotIn", "values": ["privileged"]}]}
