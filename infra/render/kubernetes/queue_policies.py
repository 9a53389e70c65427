"""What is written into work before queues see it: policies that Kueue's own defaults have no field for.

Near to itself
    Kueue gives a flavour with a topology only to work that asks for one, and a flavour without only to work
    that does not, where a queue has both (Kueue, "Topology Aware Scheduling"). Flavours with cards have a
    topology; so work with cards that asks for nothing prefers one machine, then one rack or zone, then one
    site.
Machines that are large enough
    A pool is one flavour, and Kueue counts its cards, not those of a machine: it would give a pod of eight
    cards to a pool of four-card machines, where it waits for ever. Such pools are excluded.
Cards of its class
    Jobs and pods have them by `infra.render.kubernetes.scheduling`. Queues decide by a JobSet, whose jobs
    come later, so the same is written into its templates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from infra.catalogue.labels import GPU_CLASS, OURS, POOL
from infra.model import Cluster
from infra.model.kubernetes import PriorityClass
from infra.render.kubernetes.manifests import Object, mutating_api, of
from infra.render.kubernetes.scheduling import GPU_TAINT, RESOURCES
from infra.render.kubernetes.tenants import OF_TENANTS

PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
_ASKING: Final = (
    "kueue.x-k8s.io/podset-required-topology",
    PREFERRED,
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
)
_MACHINE: Final = "kubernetes.io/hostname"
_CARDS: Final = GPU_TAINT
"""The resource, which the taint is named after."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Something with a template of pods in it, or several."""

    group: str
    version: str
    resources: str
    templates: str
    """The templates, as a list in CEL."""
    path: str
    """Where template ``i`` is, a JSON Pointer in CEL."""


_KINDS: Final = (
    _Kind("", "v1", "pods", "[object]", "''"),
    _Kind("batch", "v1", "jobs", "[object.spec.template]", "'/spec/template'"),
    _Kind(
        "jobset.x-k8s.io",
        "v1alpha2",
        "jobsets",
        "object.spec.replicatedJobs.map(each, each.template.spec.template)",
        "'/spec/replicatedJobs/' + string(i) + '/template/spec/template'",
    ),
)


def policies(cluster: Cluster) -> Iterator[Object]:
    """A policy and its binding for each kind of work."""
    api = mutating_api(cluster.kubernetes.version)
    # Pool → the cards of one of its machines.
    largest = {
        pool.name: max(int(group.allocatable.get(_CARDS, "0")) for group in pool.groups)
        for pool in cluster.pools
        if pool.groups
    }
    for kind in _KINDS:
        name = f"queues-of-{kind.resources}.{OURS}"
        rules = {
            "apiGroups": [kind.group],
            "apiVersions": [kind.version],
            "operations": ["CREATE"],
            "resources": [kind.resources],
        }
        classes = cluster.kubernetes.priority_classes if kind.resources == "jobsets" else ()
        yield of(
            api,
            "MutatingAdmissionPolicy",
            name,
            spec={
                "failurePolicy": "Fail",
                "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [rules]},
                "reinvocationPolicy": "IfNeeded",
                "variables": [
                    {"name": variable, "expression": expression}
                    for variable, expression in _variables(kind, largest, classes).items()
                ],
                "mutations": [
                    {"patchType": "JSONPatch", "jsonPatch": {"expression": " + ".join(_patches(kind))}}
                ],
            },
        )
        yield of(
            api,
            "MutatingAdmissionPolicyBinding",
            name,
            spec={"policyName": name, "matchResources": {"namespaceSelector": OF_TENANTS}},
        )


def _variables(kind: _Kind, largest: Mapping[str, int], classes: tuple[PriorityClass, ...]) -> dict[str, str]:
    """Lists, of which each has an entry for each template."""
    limits = "has(c.resources) && has(c.resources.limits)"
    amount = "quantity(string(c.resources.limits[{}]))"
    containers = "t.spec.containers + (has(t.spec.initContainers) ? t.spec.initContainers : [])"
    wants = (
        f"({containers}).exists(c, {limits} && c.resources.limits.exists(r, r.startsWith({_cel(RESOURCES)})"
        f" && {amount.format('r')}.isGreaterThan(quantity('0'))))"
    )
    cards = (
        f"t.spec.containers.map(c, {limits} && {_cel(_CARDS)} in c.resources.limits ?"
        f" {amount.format(_cel(_CARDS))}.asInteger() : 0).sum()"
    )
    affinity = "has(t.spec.affinity) && has(t.spec.affinity.nodeAffinity)"
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (
        f"{affinity} && has(t.spec.affinity.nodeAffinity.{required}) ?"
        f" t.spec.affinity.nodeAffinity.{required}.nodeSelectorTerms : []"
    )
    default = next((each.name for each in classes if each.default), "")
    named = f"has(t.spec.priorityClassName) ? t.spec.priorityClassName : {_cel(default)}"
    found = {
        "templates": kind.templates,
        "wants": f"variables.templates.map(t, {wants})",
        "terms": f"variables.templates.map(t, {terms})",
        # A list, as the order of a map in CEL is not the same each time.
        "pools": "["
        + ", ".join(
            f"{{'name': dyn({_cel(name)}), 'cards': dyn({most})}}"
            for name, most in sorted(largest.items())
            if most
        )
        + "]",
        "small": f"variables.templates.map(t, variables.pools.filter(p, p.cards < {cards}).map(p, p.name))",
        "cardsOfClasses": _cel(
            {each.name: list(each.gpu_classes) for each in classes if len(each.gpu_classes) < 3}
        ),
        "cards": f"variables.templates.map(t, ({named}) in variables.cardsOfClasses ?"
        f" variables.cardsOfClasses[{named}] : [])",
    }
    if not classes:
        del found["cardsOfClasses"], found["cards"]
    if not any(largest.values()):
        del found["pools"], found["small"]
    requirements = [
        *([_requirement("small", POOL, "NotIn", "false")] if "small" in found else []),
        *([_requirement("cards", GPU_CLASS, "In", "true")] if "cards" in found else []),
    ]
    # What its required affinity is to have and has not yet.
    found["requirements"] = f"{_every()}.map(i, {' + '.join(requirements) or '[]'})"
    return found


def _every() -> str:
    return "lists.range(size(variables.templates))"


def _requirement(values: str, key: str, operator: str, subset: str) -> str:
    """A requirement in CEL, in a list, or none. ``subset``: whether it may name fewer values already."""
    wanted = f"variables.{values}[i]"
    listed = f"e.values.all(v, v in {wanted})" if subset == "true" else f"{wanted}.all(v, v in e.values)"
    there = (
        "size(variables.terms[i]) > 0 && variables.terms[i].all(t, has(t.matchExpressions) &&"
        f" t.matchExpressions.exists(e, e.key == {_cel(key)} && e.operator == {_cel(operator)} && {listed}))"
    )
    made = f"{{'key': dyn({_cel(key)}), 'operator': dyn({_cel(operator)}), 'values': dyn({wanted})}}"
    return f"(variables.wants[i] && size({wanted}) > 0 && !({there}) ? [{made}] : [])"


def _patches(kind: _Kind) -> Iterator[str]:
    template = "variables.templates[i]"
    path = kind.path

    def add(where: str, value: str) -> str:
        return f"JSONPatch{{op: 'add', path: {path} + {where}, value: {value}}}"

    def each(condition: str, patch: str) -> str:
        return f"{_every()}.filter(i, {condition}).map(i, {patch})"

    annotated = f"has({template}.metadata) && has({template}.metadata.annotations)"
    asks = " || ".join(f"{_cel(word)} in {template}.metadata.annotations" for word in _ASKING)
    silent = f"variables.wants[i] && !({annotated} && ({asks}))"
    yield each(f"{silent} && !has({template}.metadata)", add("'/metadata'", "{}"))
    yield each(f"{silent} && !({annotated})", add("'/metadata/annotations'", "{}"))
    written = PREFERRED.replace("/", "~1")  # RFC 6901
    yield each(silent, add(_cel(f"/metadata/annotations/{written}"), _cel(_MACHINE)))

    lacking = "size(variables.requirements[i]) > 0"
    spec = f"{template}.spec"
    yield each(f"{lacking} && !has({spec}.affinity)", add("'/spec/affinity'", "{}"))
    node = "/spec/affinity/nodeAffinity"
    yield each(
        f"{lacking} && !(has({spec}.affinity) && has({spec}.affinity.nodeAffinity))", add(_cel(node), "{}")
    )
    required = f"{node}/requiredDuringSchedulingIgnoredDuringExecution"
    yield each(
        f"{lacking} && size(variables.terms[i]) == 0",
        add(_cel(required), "{'nodeSelectorTerms': [{'matchExpressions': []}]}"),
    )
    term = f"{_cel(required + '/nodeSelectorTerms/')} + string(j) + '/matchExpressions"
    terms = "lists.range(size(variables.terms[i]) == 0 ? 1 : size(variables.terms[i]))"
    bare = "lists.range(size(variables.terms[i])).filter(j, !has(variables.terms[i][j].matchExpressions))"
    yield (f"{_every()}.filter(i, {lacking}).map(i, {bare}.map(j, {add(term + chr(39), '[]')})).flatten()")
    one = add(term + "/-'", "r")
    yield (
        f"{_every()}.filter(i, {lacking}).map(i, {terms}.map(j,"
        f" variables.requirements[i].map(r, {one})).flatten()).flatten()"
    )


def _cel(value: object) -> str:
    """A value as CEL writes it, which for texts, lists and maps is JSON."""
    return json.dumps(value)
