"""`invoke autoscaler.explain --file job.yaml`: what the autoscaler would do for a workload in a file.

Machines at physical sites are empty, groups are as in AWS now, and nothing else waits. If KUBEBUILDER_ASSETS
names an API server, the workload is first submitted to it, with our admission policies. The embedded AWS has
no cluster: this is how to try a spec's pools without an account.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from infra.commands import session
from infra.commands.autoscaler import configuring
from infra.commands.autoscaler.answers import environment, tell_all
from infra.commands.cluster import previewing
from infra.commands.cluster_access import Reach
from infra.commands.environment import Project
from infra.commands.terminal import columns, say, say_json
from infra.drive import clock
from infra.errors import UsageError

if TYPE_CHECKING:
    from infra.autoscaler.decision import Decision
    from infra.model import Cluster

Object: TypeAlias = dict[str, Any]

NAMESPACE: Final = "default"
"""The namespace of workloads that do not name one, as in kubectl."""

_WAITED: Final = timedelta(minutes=5)
"""The assumed waiting time of the workload: the controller leaves younger pods to their Job."""

_PATHS: Final = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
}


def explain(project: Project, file: str, *, json: bool) -> int:
    """Show what the autoscaler would do for the workload in a file."""
    work = read(Path(file))
    configuring.scalable(project)
    with previewing.server(project) as there:
        caches = _admitted(there, work) if there is not None else _as_written(work)
    _show(decided(project, {"Node": machines(project.cluster), **caches}), json=json)
    return 0


def read(file: Path) -> list[Object]:
    """The Pods and Jobs of a manifest. Raises ``UsageError`` with every document of another kind."""
    import yaml

    try:
        documents = [each for each in yaml.safe_load_all(file.read_text(encoding="utf-8")) if each]
    except OSError as problem:
        raise UsageError(f"{file}: {problem.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise UsageError(f"{file}: not YAML: {problem}") from None
    wrong = [
        f"document {number}: {why}"
        for number, document in enumerate(documents, 1)
        if (why := _unusable(document))
    ]
    if wrong:
        raise UsageError(f"{file}: {'; '.join(wrong)}")
    if not documents:
        raise UsageError(f"{file}: no Pod or Job found")
    return documents


def _unusable(document: object) -> str:
    """Why a document cannot be previewed; empty if it can."""
    if not isinstance(document, dict) or document.get("kind") not in _PATHS:
        kind = document.get("kind", "without a kind") if isinstance(document, dict) else "not an object"
        return f"{kind}; only Pod and Job can be previewed"
    if not isinstance(document.get("metadata"), dict) or not document["metadata"].get("name"):
        return f"{document['kind']} without metadata.name"
    spec = document.get("spec")
    template = spec if document["kind"] == "Pod" else (spec or {}).get("template", {}).get("spec")
    if not isinstance(template, dict) or not template.get("containers"):
        return f"{document['kind']} {document['metadata']['name']} has no containers"
    return ""


def pods(work: Object) -> Iterator[Object]:
    """The pods that a Job's controller would create; for a Pod, itself."""
    if work["kind"] == "Pod":
        yield work
        return
    spec, about = work["spec"], work["metadata"]
    parallel = int(spec.get("parallelism", 1))
    count = min(parallel, int(spec.get("completions", parallel)))
    template = spec["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": about["name"], "uid": about["uid"],
             "controller": True}  # fmt: skip
    for index in range(count):
        meta = template.get("metadata") or {}
        labels = {**(meta.get("labels") or {}), "batch.kubernetes.io/job-name": about["name"]}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **meta,
                "name": f"{about['name']}-{index}",
                "namespace": about["namespace"],
                "labels": labels,
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }


def machines(cluster: Cluster) -> list[Object]:
    """The machines at physical sites that accept work, as empty nodes."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": node.name,
                "uid": node.name,
                "labels": {**node.labels, "kubernetes.io/hostname": node.name},
                "creationTimestamp": _stamp(),
            },
            "spec": {
                "taints": [
                    {"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.taints
                ]
            },
            "status": {
                "allocatable": dict(node.allocatable),
                "capacity": dict(node.allocatable),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for site in cluster.sites
        for node in site.nodes
        if node.runs_pods
    ]


def decided(project: Project, caches: Mapping[str, list[Object]]) -> Decision:
    """The autoscaler's own decision on these objects and AWS's groups."""
    from infra.autoscaler.aws.clients import Clients
    from infra.autoscaler.aws.reading import Reader
    from infra.autoscaler.decide import decide
    from infra.autoscaler.memory import Memory
    from infra.autoscaler.observed.decoding import Decoder, snapshot

    decoder, config = Decoder(), configuring.config(project)
    listed = {
        kind: decoder.list(kind, json.dumps({"metadata": {}, "items": objects}).encode())
        for kind, objects in caches.items()
    }
    with environment(session.credentials(project.environment, project.cluster)):
        groups = Reader(config, Clients()).read()
    now = clock.now().timestamp()
    seen = snapshot(
        {kind: page.objects for kind, page in listed.items()},
        groups.groups,
        groups.errors,
        groups.prices,
        now,
        {f"{kind}/{key}": why for kind, page in listed.items() for key, why in page.faults.items()},
        provisioning_class=config.provisioning_class,
    )
    return decide(seen, Memory(), config, now)


def _show(decision: Decision, *, json: bool) -> None:
    """Print the verdicts, then the group sizes that the controller would set."""
    import msgspec

    from infra.autoscaler.decision import SetDesired
    from infra.autoscaler.reporting.explain import plain

    sizes = [action for action in decision.actions if isinstance(action, SetDesired)]
    if json:
        say_json({"verdicts": [*map(plain, decision.verdicts)], "sizes": msgspec.to_builtins(sizes)})
        return
    tell_all(decision)
    if sizes:
        say()
        say(
            columns(
                ("the autoscaler would set", "from", "to", "because"),
                [(size.group, str(size.was), str(size.desired), size.reason) for size in sizes],
            )
        )


# -- Objects ----------------------------------------------------------------------------------------------


def _as_written(work: list[Object]) -> dict[str, list[Object]]:
    """The workload's objects as listed by kind, without an API server."""
    found: dict[str, list[Object]] = {"Job": [], "Pod": []}
    for number, document in enumerate(work):
        meta = {"namespace": NAMESPACE, **document["metadata"], "uid": f"work-{number}",
                "creationTimestamp": _stamp()}  # fmt: skip
        made = {**document, "metadata": meta}
        if made["kind"] == "Job":
            found["Job"].append(made)
        found["Pod"] += [_pending(pod, uid=f"work-{number}-{index}") for index, pod in enumerate(pods(made))]
    return found


def _admitted(there: Reach, work: list[Object]) -> dict[str, list[Object]]:
    """The objects as an API server with our objects and policies admits them. Raises ``DriveError`` with its
    message if it refuses the workload."""
    previewing.offered(there)
    found: dict[str, list[Object]] = {"Job": [], "Pod": []}
    for document in work:
        namespace = document["metadata"].get("namespace", NAMESPACE)
        if there.api.find(f"/api/v1/namespaces/{namespace}") is None:
            there.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        made = {**document, "metadata": {**document["metadata"], "namespace": namespace}}
        if document["kind"] == "Job":
            made = there.api.create(_PATHS["Job"].format(namespace), made)
            made = {"apiVersion": "batch/v1", "kind": "Job", **made}
            found["Job"].append(made)
        for pod in pods(made):
            answer = there.api.create(_PATHS["Pod"].format(namespace), pod)
            found["Pod"].append(_pending(answer, uid=answer["metadata"]["uid"]))
    return found


def _pending(pod: Object, *, uid: str) -> Object:
    """A pod that has waited for a while and that the scheduler cannot schedule."""
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    meta = {**pod["metadata"], "uid": uid, "creationTimestamp": _stamp()}
    return {**pod, "metadata": meta, "status": {"phase": "Pending", "conditions": [waits]}}


def _stamp() -> str:
    return (clock.now() - _WAITED).strftime("%Y-%m-%dT%H:%M:%SZ")
