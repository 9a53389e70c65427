"""What people with rights in a namespace may still not do, as it would be to the loss of others or their own.

A host of a page
    belongs to one namespace: ``<namespace>.<domain>`` and what is below it. An Ingress may claim no other, be
    it the cluster's own or somebody else's, and bring no certificate: Traefik shows one for every host in it.
A claim on the paths of machines
    stays (``volumes.py``): the volume behind it is kept for it alone, and would have to be freed for another.
A place in a queue
    is what the queue gives: a person may take a workload out of it, and change nothing else of it. What a
    controller has made for work that was let in is let in with it, so nobody else may say that it has. Nor
    does anybody else begin what the queue holds back: by the time Kueue stops it, it may be on a node.
Parts of a GPU
    are nothing that a container may ask for. Kubernetes refuses them in pods and jobs; in a JobSet nothing
    looks, and no job would ever come of it.
Packets of one's own making
    (``NET_RAW``) are nothing that a container needs: it is dropped from each. One that asks for it keeps it,
    which Pod Security allows in namespaces of the level ``privileged`` alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from infra.catalogue.labels import OURS
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.admission import EPHEMERAL, PODS, pod_specs, validating
from infra.render.kubernetes.manifests import Documents, Object, mutating_api, of
from infra.render.kubernetes.scheduling import GPU_TAINT
from infra.render.kubernetes.tenants import OF_TENANTS
from infra.render.kubernetes.volumes import claims_made_beforehand

_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")

SYSTEM: Final = (
    "request.userInfo.username.startsWith('system:')"
    " && !request.userInfo.username.startsWith('system:serviceaccount:' + request.namespace + ':')"
)
"""Whether Kubernetes' own parts or a controller ask, in CEL; a pod of the namespace is neither."""

_ENGINEER: Final = "authorizer.group('kueue.x-k8s.io').resource('clusterqueues').check('update').allowed()"
"""Whether who asks may change the queues themselves, in CEL."""


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``names.yaml``, ``claims.yaml``, ``queues.yaml``, ``gpus.yaml`` and ``packets.yaml``."""
    queued = [*_workloads(), *_gates(), *_owners()] if cluster.kubernetes.has("kueue") else []
    return {
        "names.yaml": _names(cluster),
        "claims.yaml": _claims(cluster),
        "queues.yaml": queued,
        "gpus.yaml": _whole_gpus() if cluster.kubernetes.has("jobset") else [],
        "packets.yaml": _packets(cluster),
    }


def _names(cluster: Cluster) -> list[Object]:
    ingress = cluster.kubernetes.ingress
    if ingress is None:
        return []
    # A namespace may have its name.
    taken = json.dumps(ingress.fqdn)
    own = json.dumps(f".{ingress.fqdn.partition('.')[2]}")
    return _policy(
        f"names-of-pages.{OURS}",
        [
            {
                "apiGroups": ["networking.k8s.io"],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["ingresses"],
            }
        ],
        "!has(object.spec.defaultBackend) && has(object.spec.rules) && object.spec.rules.all(r,"
        f" has(r.host) && !r.host.startsWith('*') && r.host != {taken}"
        f" && ('.' + r.host).endsWith('.' + request.namespace + {own}))"
        " && (!has(object.spec.tls) || object.spec.tls.all(t, !has(t.secretName)))",
        "an Ingress serves hosts of its namespace, <namespace>.<domain> or below it, each by its name, with"
        " the cluster's certificate",
    )


def _claims(cluster: Cluster) -> list[Object]:
    names = claims_made_beforehand(cluster)
    if not names:
        return []
    return _policy(
        f"claims-on-paths.{OURS}",
        [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["DELETE"],
                "resources": ["persistentvolumeclaims"],
            }
        ],
        # The cluster's own controllers may, as a namespace ends with its claims; so may who could free it.
        f"({SYSTEM}) || authorizer.group('').resource('persistentvolumes').check('delete').allowed()"
        # By name: whoever may delete a claim may take its labels away first.
        f" || !(oldObject.metadata.name in {json.dumps(names)})",
        "this claim shows a path of the machines, and is made once: delete files in it rather than the claim",
    )


def _workloads() -> list[Object]:
    changed = " && ".join(
        f"(has(object.metadata.{field}) ? has(oldObject.metadata.{field})"
        f" && object.metadata.{field} == oldObject.metadata.{field} : !has(oldObject.metadata.{field}))"
        for field in ("labels", "annotations", "ownerReferences", "finalizers")
    )
    return _policy(
        f"workloads.{OURS}",
        [
            {
                "apiGroups": ["kueue.x-k8s.io"],
                "apiVersions": ["v1beta2"],
                "operations": ["UPDATE"],
                "resources": ["workloads"],
            }
        ],
        f"({SYSTEM}) || {_ENGINEER} || (dyn(object).spec.all(k, k == 'active'"
        " || (k in dyn(oldObject).spec && dyn(object).spec[k] == dyn(oldObject).spec[k]))"
        f" && dyn(oldObject).spec.all(k, k == 'active' || k in dyn(object).spec) && {changed})",
        "of a workload people may change spec.active alone: its place in the queue is the queue's to give",
    )


def _gates() -> list[Object]:
    """All work of tenants is queued, so nothing of theirs is suspended or gated by Kueue but what waits."""

    def gates(of: str) -> str:
        return (
            f"(has({of}.spec.schedulingGates) ? {of}.spec.schedulingGates"
            ".map(g, g.name).filter(n, n.startsWith('kueue.x-k8s.io/')) : [])"
        )

    def suspended(of: str) -> str:
        return f"(has({of}.spec.suspend) && {of}.spec.suspend)"

    old, new = "dyn(oldObject)", "dyn(object)"
    return _policy(
        f"gates.{OURS}",
        [
            {
                "apiGroups": [group],
                "apiVersions": ["*"],
                "operations": ["UPDATE"],
                "resources": [resource],
            }
            for group, resource in (("", "pods"), ("batch", "jobs"), ("jobset.x-k8s.io", "jobsets"))
        ],
        f"({SYSTEM}) || {_ENGINEER} || ({new}.kind == 'Pod'"
        f" ? {gates(old)}.all(n, n in {gates(new)}) : !{suspended(old)} || {suspended(new)})",
        "only its queue lets work begin: leave suspend: true, and scheduling gates of kueue.x-k8s.io, as they"
        " are",
    )


def _owners() -> list[Object]:
    def controller(of: str) -> str:
        return (
            f"(has({of}.metadata.ownerReferences) ? {of}.metadata.ownerReferences"
            ".filter(o, has(o.controller) && o.controller).map(o, o.uid) : [])"
        )

    return _policy(
        f"owners.{OURS}",
        [
            {
                "apiGroups": [group],
                "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE"],
                "resources": list(resources),
            }
            for group, resources in (
                ("", ("pods",)),
                ("batch", ("jobs",)),
                ("apps", ("replicasets", "statefulsets")),
                ("jobset.x-k8s.io", ("jobsets",)),
            )
        ],
        f"({SYSTEM}) || {_ENGINEER} ||"
        f" {controller('object')} == (oldObject == null ? [] : {controller('oldObject')})",
        "only controllers make what a controller owns: leave ownerReferences with controller: true out",
    )


def _whole_gpus() -> list[Object]:
    def whole(of: str) -> str:
        asked = f"c.resources.{of}[{json.dumps(GPU_TAINT)}]"
        there = f"has(c.resources.{of}) && {json.dumps(GPU_TAINT)} in c.resources.{of}"
        return f"(!({there}) || string({asked}).matches('^[0-9]+$'))"

    containers = " + ".join(f"(has(s.{kind}) ? s.{kind} : [])" for kind in _CONTAINERS[:2])
    return _policy(
        f"whole-gpus.{OURS}",
        [
            {
                "apiGroups": ["jobset.x-k8s.io"],
                "apiVersions": ["v1alpha2"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["jobsets"],
            }
        ],
        f"({pod_specs('dyn(object)')}).all(s, ({containers}).all(c, !has(c.resources)"
        f" || ({whole('limits')} && {whole('requests')})))",
        f"{GPU_TAINT} is a whole number: a container has GPUs, and no part of one",
    )


def _packets(cluster: Cluster) -> list[Object]:
    name, api = f"packets.{OURS}", mutating_api(cluster.kubernetes.version)
    patches = [patch for kind in _CONTAINERS for patch in _without_net_raw(kind)]
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [PODS, EPHEMERAL]},
        "reinvocationPolicy": "IfNeeded",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " + ".join(patches)}}],
    }
    binding = {"policyName": name, "matchResources": {"namespaceSelector": OF_TENANTS}}
    return [
        of(api, "MutatingAdmissionPolicy", name, spec=spec),
        of(api, "MutatingAdmissionPolicyBinding", name, spec=binding),
    ]


def _without_net_raw(kind: str) -> Iterator[str]:
    """In CEL: what each container of a kind lacks, from the outside in; JSON Patch makes no parents."""
    pod = "object.spec"
    every = f"lists.range(has({pod}.{kind}) ? size({pod}.{kind}) : 0)"
    context = f"{pod}.{kind}[i].securityContext"
    capabilities = f"{context}.capabilities"
    path = f"'/spec/{kind}/' + string(i) + '/securityContext"
    bare, unsaid = f"!has({context})", f"!has({capabilities})"
    undropped = f"({unsaid} || !has({capabilities}.drop))"
    asked = f"!{bare} && !{unsaid} && has({capabilities}.add) && {capabilities}.add.exists(c, c == 'NET_RAW')"
    for missing, below, value in (
        (bare, "", "{}"),
        (f"{bare} || {unsaid}", "/capabilities", "{}"),
        (f"{bare} || {undropped}", "/capabilities/drop", "[]"),
    ):
        yield (
            f"{every}.filter(i, ({missing}) && !({asked}))"
            f".map(i, JSONPatch{{op: 'add', path: {path}{below}', value: {value}}})"
        )
    kept = f"{bare} || {undropped} || !{capabilities}.drop.exists(c, c in ['ALL', 'NET_RAW'])"
    yield (
        f"{every}.filter(i, ({kept}) && !({asked}))"
        f".map(i, JSONPatch{{op: 'add', path: {path}/capabilities/drop/-', value: 'NET_RAW'}})"
    )


def _policy(name: str, rules: list[Object], expression: str, message: str) -> list[Object]:
    """A rule of people's namespaces."""
    return validating(name, rules, [{"expression": expression, "message": message}], namespaces=OF_TENANTS)
