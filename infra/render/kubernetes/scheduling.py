"""Which work goes where, and before whom: classes of work, and rules that hold in people's namespaces.

Work that asks for cards
    is given the cards of its class (``kubernetes.priority_classes``), the newest of them first: low work goes
    to old cards, which nobody else wants, and high work to new ones.
Work that does not
    stays off nodes with cards, so that a card never waits for a processor. Work that makes way for all else
    (of a class below 0) may use machines of ours while they are idle, after all others, and is evicted when
    work with a use for the cards comes. In the cloud an idle machine goes away instead.
Everybody
    names a class of the spec, and neither a node nor a taint that keeps people off machines.

A mutating policy writes the first two into pods and jobs; a validating one refuses what is still without, and
the rest. Jobs are treated like their pods, as queues decide by the job.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.catalogue.labels import GPU_CLASS, GPU_LIMIT, OURS, WITHOUT_GPUS
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.kubernetes import PriorityClass
from infra.render.kubernetes.manifests import Documents, Object, mutating_api, of
from infra.render.kubernetes.tenants import OF_TENANTS

RESOURCES: Final = "nvidia.com/"
"""What asking for cards, or for parts of them, begins with."""
GPU_TAINT: Final = "nvidia.com/gpu"
"""The taint that nodes with cards carry by custom (NVIDIA's charts tolerate it too)."""

_FORBIDDEN_TAINTS: Final = (
    "node-role.kubernetes.io/control-plane",
    "node.kubernetes.io/unschedulable",
)

_STABLE: Final = "admissionregistration.k8s.io/v1"
_WEIGHTS: Final = (100, 50, 25)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Something with pods in it."""

    name: str
    group: str
    resources: str
    path: str
    """Where the pod's specification stands: ``spec.template.spec``."""


_KINDS: Final = (
    _Kind("pods", "", "pods", "spec"),
    _Kind("jobs", "batch", "jobs", "spec.template.spec"),
)


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Classes of work, what is written into work, and what is refused."""
    classes = cluster.kubernetes.priority_classes
    apart = has_room_without_gpus(cluster)
    mutating = mutating_api(cluster.kubernetes.version)
    return {
        "classes.yaml": [_priority_class(each) for each in classes],
        "placement.yaml": [
            each for kind in _KINDS for each in _placement(kind, classes, mutating, apart=apart)
        ],
        "limits.yaml": [each for kind in _KINDS for each in _limits(kind, classes)],
    }


def has_room_without_gpus(cluster: Cluster) -> bool:
    """Whether there are workers without cards. Where there are none, other work goes where it can."""
    racks = (node for site in cluster.sites for node in site.nodes)
    pools = any(pool.gpus is None and any(group.max for group in pool.groups) for pool in cluster.pools)
    return pools or any(node.gpus is None and "worker" in node.roles for node in racks)


def _priority_class(each: PriorityClass) -> Object:
    cards = "any cards" if len(each.gpu_classes) == 3 else f"{' and '.join(each.gpu_classes)} cards"
    return of(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        each.name,
        value=each.value,
        globalDefault=each.default,
        preemptionPolicy="PreemptLowerPriority" if each.preempts else "Never",
        description=f"Work that is given {cards}." + (" Makes way for all else." if each.yields else ""),
    )


# -- What is written into work ------------------------------------------------------------------------------


def _variables(kind: _Kind, classes: Sequence[PriorityClass]) -> list[dict[str, str]]:
    """What both kinds of policy reckon with; each may use those above it."""
    default = next((each.name for each in classes if each.default), "")
    return [
        _variable("pod", f"object.{kind.path}"),
        _variable(
            "named",
            "has(variables.pod.priorityClassName) && variables.pod.priorityClassName != '' ?"
            f" variables.pod.priorityClassName : {_cel(default)}",
        ),
        _variable(
            "containers",
            "variables.pod.containers"
            " + (has(variables.pod.initContainers) ? variables.pod.initContainers : [])",
        ),
        _variable(
            "wantsCards",
            "variables.containers.exists(c, has(c.resources) && has(c.resources.limits)"
            f" && c.resources.limits.exists(r, r.startsWith({_cel(RESOURCES)})"
            " && quantity(string(c.resources.limits[r])).isGreaterThan(quantity('0'))))",
        ),
        # Class → cards, newest first. A class of the system may have any.
        _variable("cardsOfClasses", _cel({each.name: list(each.gpu_classes) for each in classes})),
        _variable(
            "cards",
            "variables.named in variables.cardsOfClasses ? variables.cardsOfClasses[variables.named]"
            " : ['new', 'standard', 'old']",
        ),
        _variable("yields", f"variables.named in {_cel([each.name for each in classes if each.yields])}"),
        _variable(
            "affinity",
            "has(variables.pod.affinity) && has(variables.pod.affinity.nodeAffinity)",
        ),
        _variable(
            "terms",
            "variables.affinity"
            " && has(variables.pod.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution) ?"
            " variables.pod.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms : []",
        ),
        # Whether every alternative demands cards of the class, or keeps off them.
        _variable(
            "onItsCards",
            "size(variables.cards) == 3 || (size(variables.terms) > 0 && variables.terms.all(t,"
            f" has(t.matchExpressions) && t.matchExpressions.exists(e, e.key == {_cel(GPU_CLASS)}"
            " && e.operator == 'In' && e.values.all(v, v in variables.cards))))",
        ),
        _variable("shunned", "variables.yields ? ['never'] : ['idle', 'never']"),
        _variable(
            "offCards",
            "size(variables.terms) > 0 && variables.terms.all(t,"
            f" has(t.matchExpressions) && t.matchExpressions.exists(e, e.key == {_cel(WITHOUT_GPUS)}"
            " && e.operator == 'NotIn' && variables.shunned.all(v, v in e.values)))",
        ),
    ]


def _placement(
    kind: _Kind, classes: Sequence[PriorityClass], api: str, *, apart: bool
) -> tuple[Object, Object]:
    """The policy that writes into work where it goes; ``apart``: whether other work keeps off cards."""
    name = f"placement-of-{kind.name}.{OURS}"
    kept = "!variables.wantsCards && !variables.offCards" if apart else "false"
    required = f"(variables.wantsCards && !variables.onItsCards) || ({kept})"
    variables = [
        *_variables(kind, classes),
        _variable("demands", required),
        _variable("key", f"variables.wantsCards ? {_cel(GPU_CLASS)} : {_cel(WITHOUT_GPUS)}"),
        _variable("operator", "variables.wantsCards ? 'In' : 'NotIn'"),
        _variable("values", "variables.wantsCards ? variables.cards : variables.shunned"),
    ]
    patches = [_requirement(kind), _preferences(kind), _toleration(kind)]
    return _policy(
        "Mutating",
        api,
        name,
        kind,
        {
            "operations": ["CREATE"],
            "spec": {
                "reinvocationPolicy": "IfNeeded",
                "variables": variables,
                "mutations": [
                    {"patchType": "JSONPatch", "jsonPatch": {"expression": " + ".join(patches)}},
                ],
            },
        },
    )


def _requirement(kind: _Kind) -> str:
    """Writes the requirement into every alternative, or as the only one."""
    where = f"/{kind.path.replace('.', '/')}/affinity"
    node = f"{where}/nodeAffinity"
    required = f"{node}/requiredDuringSchedulingIgnoredDuringExecution"
    typed = f"Object.{kind.path}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    term = f"{typed}.nodeSelectorTerms"
    fields = "key: variables.key, operator: variables.operator, values: variables.values"
    expression = f"{term}.matchExpressions{{{fields}}}"
    only = f"{typed}{{nodeSelectorTerms: [{term}{{matchExpressions: [{expression}]}}]}}"
    path = f"{_cel(required + '/nodeSelectorTerms/')} + string(i) + '/matchExpressions"
    every = "lists.range(size(variables.terms))"
    return (
        f"(has(variables.pod.affinity) ? [] : [{_add(where, f'Object.{kind.path}.affinity{{}}')}])"
        f" + (variables.affinity ? [] : [{_add(node, f'Object.{kind.path}.affinity.nodeAffinity{{}}')}])"
        f" + (!variables.demands ? [] : size(variables.terms) == 0 ? [{_add(required, only)}] :"
        f" {every}.filter(i, !has(variables.terms[i].matchExpressions))"
        f".map(i, JSONPatch{{op: 'add', path: {path}', value: []}})"
        # An object alone: the API server can't write a list with objects in it (1.36).
        f" + {every}.map(i, JSONPatch{{op: 'add', path: {path}/-', value: {expression}}}))"
    )


def _preferences(kind: _Kind) -> str:
    """The newest of its cards first; without a use for cards, nodes without them first."""
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    path = f"/{kind.path.replace('.', '/')}/affinity/nodeAffinity/{field}"
    typed = f"Object.{kind.path}.affinity.nodeAffinity.{field}"
    there = f"variables.affinity && has(variables.pod.affinity.nodeAffinity.{field})"

    def preferred(weight: int, requirement: str) -> str:
        expression = f"{typed}.preference.matchExpressions{{{requirement}}}"
        preference = f"{typed}.preference{{matchExpressions: [{expression}]}}"
        return f"{typed}{{weight: {weight}, preference: {preference}}}"

    own = (
        f"variables.pod.affinity.nodeAffinity.{field}.exists(p,"
        " has(p.preference.matchExpressions) && p.preference.matchExpressions.exists(e,"
        f" e.key == (variables.wantsCards ? {_cel(GPU_CLASS)} : {_cel(WITHOUT_GPUS)})))"
    )
    cards = [
        f"(size(variables.cards) > {index + 1} ? [{_add(path + '/-', preferred(weight, _in(index)))}] : [])"
        for index, weight in enumerate(_WEIGHTS[:2])
    ]
    others = preferred(_WEIGHTS[0], f"key: {_cel(WITHOUT_GPUS)}, operator: 'DoesNotExist'")
    return (
        f"(({there}) ? [] : [{_add(path, '[]')}])"
        f" + (({there}) && {own} ? [] : variables.wantsCards ? {' + '.join(cards)}"
        f" : [{_add(path + '/-', others)}])"
    )


def _in(index: int) -> str:
    return f"key: {_cel(GPU_CLASS)}, operator: 'In', values: [variables.cards[{index}]]"


def _toleration(kind: _Kind) -> str:
    """Work with a use for cards may stand where only such work may, and so may work that fills gaps."""
    path = f"/{kind.path.replace('.', '/')}/tolerations"
    toleration = f"Object.{kind.path}.tolerations{{key: {_cel(GPU_TAINT)}, operator: 'Exists'}}"
    return (
        "(!(variables.wantsCards || variables.yields) || (has(variables.pod.tolerations)"
        " && variables.pod.tolerations.exists(t,"
        f" has(t.key) && t.key == {_cel(GPU_TAINT)} && has(t.operator) && t.operator == 'Exists'"
        " && !has(t.effect))) ? []"
        f" : (has(variables.pod.tolerations) ? [] : [{_add(path, '[]')}])"
        f" + [{_add(path + '/-', toleration)}])"
    )


def _add(path: str, value: str) -> str:
    return f"JSONPatch{{op: 'add', path: {_cel(path)}, value: {value}}}"


# -- What is refused ----------------------------------------------------------------------------------------


def _limits(kind: _Kind, classes: Sequence[PriorityClass]) -> tuple[Object, Object]:
    """The policy that refuses what people's work may not ask for."""
    names = [each.name for each in classes]
    validations = [
        _validation(
            f"variables.named == '' || variables.named in {_cel(names)}",
            f"there is no priority class for you but {', '.join(names)}",
        ),
        _validation(
            "!variables.wantsCards || variables.onItsCards",
            "",
            "'work of class ' + variables.named + ' is given cards of class ' + variables.cards.join(', ') +"
            f" ': each alternative of its required node affinity must ask for {GPU_CLASS} in these'",
        ),
        _validation(
            "!has(variables.pod.tolerations) || variables.pod.tolerations.all(t, has(t.key) && t.key != ''"
            # Of that taint user_limits.py decides.
            f" && (t.key == {_cel(GPU_LIMIT)} || !t.key.startsWith({_cel(OURS + '/')}))"
            f" && !(t.key in {_cel(list(_FORBIDDEN_TAINTS))}))",
            "a toleration of all taints, or of one that keeps people off a machine",
        ),
        _validation(
            # By the scheduler a pod comes to have a node, after it was created.
            "request.operation != 'CREATE' || !has(variables.pod.nodeName) || variables.pod.nodeName == ''",
            "spec.nodeName goes past the scheduler; name a node by nodeSelector kubernetes.io/hostname",
        ),
    ]
    return _policy(
        "Validating",
        _STABLE,
        f"limits-of-{kind.name}.{OURS}",
        kind,
        {
            "operations": ["CREATE", "UPDATE"],
            "spec": {
                # What was let in stays, whatever the classes are now: a job ends by an update of its pods.
                "matchConditions": [
                    {
                        "name": "is-another-pod",
                        "expression": "request.operation == 'CREATE'"
                        f" || object.{kind.path} != oldObject.{kind.path}",
                    }
                ],
                "variables": _variables(kind, classes),
                "validations": validations,
            },
            "binding": {"validationActions": ["Deny"]},
        },
    )


# -- Both ---------------------------------------------------------------------------------------------------


def _policy(sort: str, api: str, name: str, kind: _Kind, parts: dict[str, Any]) -> tuple[Object, Object]:
    """A policy, and the binding that puts it in force in people's namespaces."""
    constraints = {
        "matchPolicy": "Equivalent",
        "resourceRules": [
            {
                "apiGroups": [kind.group],
                "apiVersions": ["v1"],
                "operations": parts["operations"],
                "resources": [kind.resources],
            }
        ],
    }
    policy = of(
        api,
        f"{sort}AdmissionPolicy",
        name,
        spec={"failurePolicy": "Fail", "matchConstraints": constraints, **parts["spec"]},
    )
    binding = of(
        api,
        f"{sort}AdmissionPolicyBinding",
        name,
        spec={
            "policyName": name,
            "matchResources": {"namespaceSelector": OF_TENANTS},
            **parts.get("binding", {}),
        },
    )
    return policy, binding


def _variable(name: str, expression: str) -> dict[str, str]:
    return {"name": name, "expression": expression}


def _validation(expression: str, message: str, worked_out: str = "") -> dict[str, str]:
    said = {"messageExpression": worked_out} if worked_out else {"message": message}
    return {"expression": expression, **said, "reason": "Forbidden"}


def _cel(value: object) -> str:
    """A value as CEL writes it, which for texts, lists and maps is JSON."""
    return json.dumps(value)
