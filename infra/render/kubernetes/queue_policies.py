"""What is written into work before queues see it: policies that Kueue's own defaults have no field for.

Near to itself
    Kueue gives a flavour with a topology only to work that asks for one, and a flavour without only to work
    that does not, where a queue has both (Kueue, "Topology Aware Scheduling"). Flavours with cards have a
    topology; so work with cards that asks for nothing prefers one machine, then one rack or zone, then one
    site.
Pools that can run it
    A flavour is a whole pool. Its quota counts all of its GPUs, not those of a node, and its labels name no
    site: Kueue would assign a pool whose nodes have too few GPUs for one pod, or which is not in the site
    that the work selects, and the job would wait without end. Such pools are excluded, and physical
    nodes where the site is a region.
Cards of its class
    Jobs and pods have them by `infra.render.kubernetes.scheduling`. Queues decide by a JobSet, whose jobs
    come later, so the same is written into its templates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from infra.catalogue.labels import CAPACITY, GPU_CLASS, OURS, POOL, SITE
from infra.model import Cluster
from infra.model.kubernetes import PriorityClass
from infra.render.kubernetes.manifests import Object, mutating_api, of
from infra.render.kubernetes.scheduling import GPU_TAINT, RESOURCES
from infra.render.kubernetes.tenants import OF_TENANTS
from infra.render.kubernetes.user_limits import lacks_toleration, limited, share, toleration

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
    for kind in _KINDS:
        name = f"queues-of-{kind.resources}.{OURS}"
        rules = {
            "apiGroups": [kind.group],
            "apiVersions": [kind.version],
            "operations": ["CREATE"],
            "resources": [kind.resources],
        }
        classes = cluster.kubernetes.priority_classes if kind.resources == "jobsets" else ()
        patches = [*_patches(kind), *(_limits(kind) if limited(cluster) else [])]
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
                    for variable, expression in _variables(kind, cluster, classes).items()
                ],
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " + ".join(patches)}}],
            },
        )
        yield of(
            api,
            "MutatingAdmissionPolicyBinding",
            name,
            spec={"policyName": name, "matchResources": {"namespaceSelector": OF_TENANTS}},
        )


def sizes(cluster: Cluster) -> dict[str, tuple[int, list[str]]]:
    """Each pool's name, the GPUs of one of its nodes, and its sites."""
    found = {}
    for pool in sorted(cluster.pools, key=lambda each: each.name):
        groups = [group for group in pool.groups if group.max]
        cards = max((int(group.allocatable.get(_CARDS, "0")) for group in groups), default=0)
        found[pool.name] = cards, sorted(group.site for group in groups)
    return found


def _pools(cluster: Cluster) -> str:
    """In CEL: `sizes`. A list, as CEL iterates over a map in random order."""
    rows = [
        f"{{'name': dyn({_cel(name)}), 'cards': dyn({cards}), 'sites': dyn({_cel(sites)})}}"
        for name, (cards, sites) in sizes(cluster).items()
    ]
    return f"[{', '.join(rows)}]"


def _variables(kind: _Kind, cluster: Cluster, classes: tuple[PriorityClass, ...]) -> dict[str, str]:
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
        "sites": f"{_every()}.map(i, {_sites()})",
        "needed": f"variables.templates.map(t, {cards})",
        "pools": _pools(cluster),
        "unsuited": f"{_every()}.map(i, variables.pools.filter(p,"
        " (p.cards > 0 && p.cards < variables.needed[i])"
        " || (size(variables.sites[i]) > 0 && !variables.sites[i].exists(s, s in p.sites))).map(p, p.name))",
        "owned": "variables.sites.map(each, size(each) > 0 &&"
        f" each.all(s, s in {_cel(sorted(each.name for each in cluster.regions))}) ? ['physical'] : [])",
        "cardsOfClasses": _cel(
            {each.name: list(each.gpu_classes) for each in classes if len(each.gpu_classes) < 3}
        ),
        "cards": f"variables.templates.map(t, ({named}) in variables.cardsOfClasses ?"
        f" variables.cardsOfClasses[{named}] : [])",
    }
    if not classes:
        del found["cardsOfClasses"], found["cards"]
    if limited(cluster):
        found["share"] = share(cluster)
    if not cluster.pools:
        del found["sites"], found["needed"], found["pools"], found["unsuited"], found["owned"]
    requirements = [
        *([_requirement("unsuited", POOL, "NotIn")] if cluster.pools else []),
        *([_requirement("owned", CAPACITY, "NotIn")] if cluster.pools else []),
        *([f"(variables.wants[i] ? {_requirement('cards', GPU_CLASS, 'In')} : [])"] if classes else []),
    ]
    # What its required affinity is to have and has not yet.
    found["requirements"] = f"{_every()}.map(i, {' + '.join(requirements) or '[]'})"
    return found


def _sites() -> str:
    """In CEL: the sites that template ``i`` selects, by its node selector or in each term of its required
    affinity; none where it may go anywhere."""
    selector = "variables.templates[i].spec.nodeSelector"
    mine = f"e.key == {_cel(SITE)} && e.operator == 'In'"
    narrowed = f"variables.terms[i].all(t, has(t.matchExpressions) && t.matchExpressions.exists(e, {mine}))"
    values = f"t.matchExpressions.filter(e, {mine}).map(e, e.values).flatten()"
    named = f"variables.terms[i].map(t, {values}).flatten()"
    return (
        f"has({selector}) && {_cel(SITE)} in {selector} ? [{selector}[{_cel(SITE)}]]"
        f" : size(variables.terms[i]) > 0 && {narrowed} ? {named} : []"
    )


def _every() -> str:
    return "lists.range(size(variables.templates))"


def _requirement(values: str, key: str, operator: Literal["In", "NotIn"]) -> str:
    """A requirement in CEL, in a list; none where the template has it, or a stricter one."""
    wanted = f"variables.{values}[i]"
    listed = f"e.values.all(v, v in {wanted})" if operator == "In" else f"{wanted}.all(v, v in e.values)"
    there = (
        "size(variables.terms[i]) > 0 && variables.terms[i].all(t, has(t.matchExpressions) &&"
        f" t.matchExpressions.exists(e, e.key == {_cel(key)} && e.operator == {_cel(operator)} && {listed}))"
    )
    made = f"{{'key': dyn({_cel(key)}), 'operator': dyn({_cel(operator)}), 'values': dyn({wanted})}}"
    return f"(size({wanted}) > 0 && !({there}) ? [{made}] : [])"


def _add(kind: _Kind, where: str, value: str) -> str:
    return f"JSONPatch{{op: 'add', path: {kind.path} + {where}, value: {value}}}"


def _each(condition: str, patch: str) -> str:
    return f"{_every()}.filter(i, {condition}).map(i, {patch})"


def _limits(kind: _Kind) -> Iterator[str]:
    spec = "variables.templates[i].spec"
    lacking = f"variables.wants[i] && {lacks_toleration(spec)}"
    yield _each(f"{lacking} && !has({spec}.tolerations)", _add(kind, "'/spec/tolerations'", "[]"))
    yield _each(lacking, _add(kind, "'/spec/tolerations/-'", toleration()))


def _patches(kind: _Kind) -> Iterator[str]:
    template = "variables.templates[i]"
    add, each = partial(_add, kind), _each

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
