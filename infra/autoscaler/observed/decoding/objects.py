"""Converts objects in the API's format to the autoscaler's types, one kind at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias, get_args

import msgspec
from msgspec import Raw

from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.decoding import facts, wire
from infra.autoscaler.observed.decoding.shapes import Shapes, node_terms, selector, toleration
from infra.autoscaler.observed.node_affinity import CURRENT, REGION, ZONE
from infra.autoscaler.observed.quantity import asked, offered
from infra.autoscaler.observed.snapshot import (
    NO_CAPACITY,
    PODS,
    SCHEDULER,
    Budget,
    DaemonSet,
    Flavor,
    Node,
    NodeTerm,
    Owner,
    Pod,
    Requirement,
    Shape,
)
from infra.catalogue.labels import GPU_SICK, GPU_SICK_CONDITION, OURS, POOL

GANG: Final = f"{OURS}/gang"
GANG_MIN: Final = f"{OURS}/gang-min"
GANG_ACROSS: Final = f"{OURS}/gang-across"
FAULT: Final = f"{OURS}/fault"
"""The annotation of a stand-in with the reason why its pod is invalid."""
CONSUMES: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_SERVING: Final = "kueue.x-k8s.io/pod-group-serving"
"""``true``: the group is admitted as a whole, but its pods run independently."""
KUEUE_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_WORKLOAD: Final = "kueue.x-k8s.io/workload"

_READ: Final = frozenset(
    {
        CONSUMES,
        KUEUE_TOTAL,
        KUEUE_WORKLOAD,
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "cluster-autoscaler.kubernetes.io/scale-down-disabled",
        "karpenter.sh/do-not-disrupt",
    }
)
"""Annotations that are kept besides our own."""

_NOTES: Final = {
    "gang": GANG,
    "gang_min": GANG_MIN,
    "gang_across": GANG_ACROSS,
    "ends_at": f"{OURS}/ends-at",
    "safe": "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "do_not_disrupt": "karpenter.sh/do-not-disrupt",
    "index": "batch.kubernetes.io/job-completion-index",
    "kueue_group": KUEUE_GROUP,
    "kueue_serving": KUEUE_SERVING,
    "kueue_total": KUEUE_TOTAL,
    "kueue_workload": KUEUE_WORKLOAD,
    "consuming": CONSUMES,
    "consumed": CONSUMES,
    "consumes": CONSUMES,
}
_NONE: Final = wire.Notes()
_SENT_BACK: Final = ("AdmissionCheck", "PodsReadyTimeout")
_FINAL: Final = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
_RANK: Final = ("", "Accepted", "Provisioned", "BookingExpired", "CapacityRevoked", "Failed")
"""Conditions in the order in which a request gets them."""
_LABEL_DICTS: Final = 65_536

_labels = msgspec.json.Decoder(dict[str, str] | None)
_references = msgspec.json.Decoder(list[wire.Reference] | None)
_conditions = msgspec.json.Decoder(list[wire.PodCondition])
_WORDS: Final = 500
"""Maximum characters of the scheduler's message, which may name every node."""


class Reader:
    """Converts objects, sharing equal parts."""

    def __init__(self) -> None:
        self.shapes = Shapes()
        self._labels: dict[bytes, Mapping[str, str]] = {}

    # Pods and nodes.

    def pod(self, found: wire.Pod) -> Pod:
        meta, spec, status = found.metadata, found.spec, found.status or wire.PodStatus()
        owner = _owner(meta.owner_references)
        notes = meta.annotations or _NONE
        group = spec.scheduling_group.pod_group_name if spec.scheduling_group is not None else None
        return Pod(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            shape=self.shapes.of_pod(meta.namespace, spec, meta.labels, status),
            labels=self.labels(meta.labels),
            annotations={} if notes == _NONE else _noted(notes),
            owner=owner,
            node=spec.node_name or "",
            nominated=status.nominated_node_name or "",
            phase=status.phase or "Pending",
            created=_time(meta.creation_timestamp) or 0.0,
            started=_time(status.start_time),
            gated=bool(spec.scheduling_gates),
            scheduler=spec.scheduler_name or SCHEDULER,
            refused="" if spec.node_name else _refused(status.conditions),
            deleting=meta.deletion_timestamp is not None,
            mirror=notes.mirror is not None or (owner is not None and owner.kind == "Node"),
            local_storage=bool(spec.volumes) and _local(spec.volumes or (), notes.safe_volumes),
            gang=f"PodGroup/{meta.namespace}/{group}" if group else None,
            version=meta.resource_version,
            grace=30 if (grace := spec.termination_grace_period_seconds) is None else grace,
            ends=_time(meta.deletion_timestamp),
        )

    def spare_pod(self, found: wire.SparePod, why: str) -> Pod | None:
        """A stand-in for an invalid pod if it occupies a node: it counts as work of unknown kind, which is
        never evicted."""
        if not found.spec.node_name:
            return None
        meta = found.metadata
        try:
            owner = _owner(_references.decode(meta.owner_references))
        except msgspec.MsgspecError:
            owner = None
        return Pod(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            shape=self.shapes.one(Shape(meta.namespace, ((PODS, 1),))),
            annotations={FAULT: why},
            owner=owner,
            node=found.spec.node_name,
            phase="Running",
            deleting=bytes(meta.deletion_timestamp) not in (b"", b"null"),
            local_storage=True,
            version=meta.resource_version,
        )

    def spare_node(self, found: wire.SpareNode) -> Node:
        """A stand-in for an invalid node: it keeps its pods, and accepts none."""
        meta = found.metadata
        return Node(
            name=meta.name,
            uid=meta.uid,
            ready=True,
            unschedulable=True,
            provider=(found.spec.provider_id if found.spec is not None else None) or "",
            version=meta.resource_version,
        )

    def labels(self, raw: Raw) -> Mapping[str, str]:
        """Labels; equal ones are the same mapping."""
        key = bytes(raw)
        found = self._labels.get(key)
        if found is None:
            if len(self._labels) >= _LABEL_DICTS:
                self._labels.clear()
            found = self._labels[key] = (_labels.decode(raw) or {}) if key else {}
        return found

    def node(self, found: wire.Node) -> Node:
        meta, spec, status = found.metadata, found.spec or wire.NodeSpec(), found.status or wire.NodeStatus()
        conditions = {each.type: each for each in status.conditions or ()}
        ready = conditions.get("Ready")
        taints = tuple(Taint(each.key, each.value or "", each.effect) for each in spec.taints or ())
        sick = conditions.get(GPU_SICK_CONDITION)
        labels = dict(meta.labels or {})
        for former, current in CURRENT.items():
            if former in labels:
                labels.setdefault(current, labels[former])
        created = _time(meta.creation_timestamp) or 0.0
        since = _time(ready.last_transition_time) if ready is not None else None
        return Node(
            name=meta.name,
            uid=meta.uid,
            labels=labels,
            annotations=ours(meta.annotations),
            taints=taints,
            allocatable=_allocatable(status.allocatable),
            created=created,
            ready=ready is not None and ready.status == "True",
            since=created if since is None else since,
            unschedulable=bool(spec.unschedulable),
            sick=(sick is not None and sick.status == "True") or any(each.key == GPU_SICK for each in taints),
            provider=spec.provider_id or "",
            version=meta.resource_version,
        )

    def daemon_set(self, found: wire.DaemonSet) -> DaemonSet:
        meta = found.metadata
        return DaemonSet(
            meta.namespace,
            meta.name,
            self.shapes.of_template(meta.namespace, found.spec.template, daemon=True),
        )

    # Gangs.

    def template(self, namespace: str, found: wire.Template) -> facts.Template:
        meta = found.metadata or wire.TemplateMeta()
        return facts.Template(
            shape=self.shapes.of_template(namespace, found),
            labels=self.labels(meta.labels),
            annotations=ours(meta.annotations),
            priority_class=(found.spec.priority_class_name or "") if found.spec.priority is None else None,
        )

    def pod_template(self, found: wire.PodTemplate) -> facts.Template:
        made = self.template(found.metadata.namespace, found.template)
        return msgspec.structs.replace(
            made, annotations={**made.annotations, **ours(found.metadata.annotations)}
        )

    def job(self, found: wire.Job) -> facts.Job:
        meta, spec, status = found.metadata, found.spec, found.status or wire.JobStatus()
        own = ours(meta.annotations)
        of_pods = ours(spec.template.metadata.annotations) if spec.template.metadata is not None else {}
        annotations = {**of_pods, **own}
        indexed = spec.completion_mode == "Indexed"
        parallelism = 1 if spec.parallelism is None else spec.parallelism
        completions = spec.completions
        if completions is None and spec.parallelism is None:
            completions = 1
        return facts.Job(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            version=meta.resource_version,
            created=_time(meta.creation_timestamp) or 0.0,
            owner=_owner(meta.owner_references),
            indexed=indexed,
            completions=completions,
            parallelism=parallelism,
            succeeded=status.succeeded or 0,
            idle=bool(spec.suspend)
            or meta.deletion_timestamp is not None
            or _holds(status.conditions, *_FINAL, "Suspended"),
            annotations=annotations,
            template=self.template(meta.namespace, spec.template) if indexed or GANG in annotations else None,
        )

    def job_set(self, found: wire.JobSet) -> facts.JobSet:
        meta, spec, status = found.metadata, found.spec, found.status or wire.JobSetStatus()
        over = {each.name: each.succeeded for each in status.replicated_jobs_status or ()}
        replicas = {each.name: _or_one(each.replicas) for each in spec.replicated_jobs or ()}
        parts: list[facts.Part] = []
        annotations: dict[str, str] = {}
        for part in spec.replicated_jobs or ():
            later = any(
                each.status == "Complete" and over.get(each.name, 0) < replicas.get(each.name, 1)
                for each in part.depends_on or ()
            )
            job = part.template.spec
            parallelism = _or_one(job.parallelism)
            at_once = parallelism if job.completions is None else min(parallelism, job.completions)
            count = max(0, replicas[part.name] - over.get(part.name, 0)) * at_once
            template = self.template(meta.namespace, job.template)
            annotations.update(template.annotations)
            if count and not later:
                parts.append(facts.Part(part.name, count, template))
        return facts.JobSet(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            version=meta.resource_version,
            created=_time(meta.creation_timestamp) or 0.0,
            parts=tuple(parts),
            idle=bool(spec.suspend)
            or bool(status.terminal_state)
            or meta.deletion_timestamp is not None
            or _holds(status.conditions, "Completed", "Failed"),
            annotations={**annotations, **ours(meta.annotations)},
        )

    def pod_group(self, found: wire.PodGroup) -> facts.PodGroup:
        meta, spec = found.metadata, found.spec or wire.PodGroupSpec()
        gang = spec.scheduling_policy.gang if spec.scheduling_policy is not None else None
        return facts.PodGroup(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            version=meta.resource_version,
            created=_time(meta.creation_timestamp) or 0.0,
            least=gang.min_count if gang is not None else spec.min_member,
            annotations=ours(meta.annotations),
        )

    def workload(self, found: wire.Workload) -> facts.Workload:
        meta, spec, status = found.metadata, found.spec, found.status or wire.WorkloadStatus()
        assigned = {
            each.name: each.count
            for each in (status.admission.pod_set_assignments if status.admission is not None else None) or ()
        }
        over = {each.name: each.count for each in status.reclaimable_pods or ()}
        parts: list[facts.Part] = []
        annotations: dict[str, str] = {}
        for part in spec.pod_sets or ():
            admitted = assigned.get(part.name)
            count = (part.count if admitted is None else admitted) - over.get(part.name, 0)
            template = self.template(meta.namespace, part.template)
            annotations.update(template.annotations)
            if count > 0:
                parts.append(facts.Part(part.name, count, template, part.min_count))
        return facts.Workload(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            version=meta.resource_version,
            created=_time(meta.creation_timestamp) or 0.0,
            owners=tuple(Owner(each.kind, each.name, each.uid) for each in meta.owner_references or ()),
            admitted=spec.active is not False
            and meta.deletion_timestamp is None
            and _holds(status.conditions, "Admitted")
            and not _holds(status.conditions, "Finished", "Evicted"),
            parts=tuple(parts),
            annotations={**annotations, **ours(meta.annotations)},
            local_queue=spec.queue_name or "",
            queue=status.admission.cluster_queue if status.admission is not None else "",
            priority=spec.priority or 0,
            ordered=_ordered(found),
            seconds=_left(spec, status),
            over=spec.active is False
            or meta.deletion_timestamp is not None
            or _holds(status.conditions, "Finished"),
            reserved=_since(status.conditions, "QuotaReserved"),
            started=_since(status.conditions, "Admitted"),
            usage=_usage(status.admission),
        )

    def flavor(self, found: wire.ResourceFlavor) -> Flavor:
        spec = found.spec
        taints = spec.node_taints or ()
        return Flavor(
            found.metadata.name,
            (spec.node_labels or {}).get(POOL, ""),
            any(each.key == NO_CAPACITY for each in taints),
            spec.node_labels or {},
            tuple(
                Taint(each.key, each.value or "", each.effect) for each in taints if each.key != NO_CAPACITY
            ),
            tuple(toleration(each) for each in spec.tolerations or ()),
        )

    def quota(self, found: wire.Quota) -> facts.Quota:
        spec = found.spec
        flavors: dict[str, dict[str, int]] = {}
        for group in spec.resource_groups or ():
            for each in group.flavors or ():
                amounts = flavors.setdefault(each.name, {})
                for one in each.resources or ():
                    amounts[one.name] = amounts.get(one.name, 0) + offered(one.name, one.nominal_quota)
        parent = spec.cohort_name or spec.cohort or spec.parent_name or ""
        return facts.Quota(found.metadata.name, parent, flavors)

    def local_queue(self, found: wire.LocalQueue) -> str:
        """The name of its ClusterQueue."""
        return found.spec.cluster_queue

    def provisioning_request(self, found: wire.ProvisioningRequest) -> facts.ProvisioningRequest:
        meta, spec, status = found.metadata, found.spec, found.status or wire.ProvisioningStatus()
        newest: facts.Condition = ""
        since = 0.0
        for each in status.conditions or ():
            if each.status == "True" and each.type in get_args(facts.Condition):
                name: facts.Condition = each.type  # type: ignore[assignment] # it is one of them
                if _RANK.index(name) > _RANK.index(newest):
                    newest, since = name, _time(each.last_transition_time) or 0.0
        return facts.ProvisioningRequest(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            version=meta.resource_version,
            created=_time(meta.creation_timestamp) or 0.0,
            sets=tuple((each.pod_template_ref.name, max(0, each.count)) for each in spec.pod_sets),
            kind=spec.provisioning_class_name,
            parameters=spec.parameters or {},
            deleting=meta.deletion_timestamp is not None,
            condition=newest,
            since=since,
            annotations=ours(meta.annotations),
        )

    # Other kinds.

    def budget(self, found: wire.PodDisruptionBudget) -> Budget:
        spec, status = found.spec or wire.BudgetSpec(), found.status or wire.BudgetStatus()
        return Budget(
            found.metadata.namespace,
            found.metadata.name,
            selector(spec.selector),
            max(0, status.disruptions_allowed),
        )

    def claim(self, found: wire.PersistentVolumeClaim) -> facts.Claim:
        bound = found.status is not None and found.status.phase == "Bound"
        return facts.Claim(
            volume=(found.spec.volume_name or "") if bound else "", storage=found.spec.storage_class_name
        )

    def volume(self, found: wire.PersistentVolume) -> facts.Volume:
        affinity = found.spec.node_affinity
        terms = node_terms(affinity.required.node_selector_terms) if affinity and affinity.required else ()
        return facts.Volume(
            terms=_zoned(terms, found.metadata.labels or {}),
            storage=found.spec.storage_class_name or "",
            free=found.status is not None and found.status.phase == "Available",
            driver=found.spec.csi.driver if found.spec.csi is not None else "",
            handle=found.spec.csi.volume_handle if found.spec.csi is not None else "",
        )

    def storage(self, found: wire.StorageClass) -> facts.Storage:
        return facts.Storage(
            waits=found.volume_binding_mode == "WaitForFirstConsumer",
            static=found.provisioner == "kubernetes.io/no-provisioner",
            terms=tuple(
                NodeTerm(
                    labels=tuple(
                        Requirement(CURRENT.get(each.key, each.key), "In", tuple(each.values))
                        for each in term.match_label_expressions or ()
                    )
                )
                for term in found.allowed_topologies or ()
            ),
            default=(found.metadata.annotations or {}).get("storageclass.kubernetes.io/is-default-class")
            == "true",
            provisioner=found.provisioner,
        )

    def csi_node(self, found: wire.CSINode) -> Mapping[str, int]:
        """Driver → the maximum number of its volumes on the node, if declared."""
        return {
            each.name: each.allocatable.count
            for each in found.spec.drivers or ()
            if each.allocatable is not None and each.allocatable.count is not None
        }

    def namespace(self, found: wire.Namespace) -> Mapping[str, str]:
        return found.metadata.labels or {}

    def priority(self, found: wire.PriorityClass) -> facts.Priority:
        return facts.Priority(found.value, bool(found.global_default))


Make: TypeAlias = Callable[[Any], Any]


def kinds(reader: Reader) -> Mapping[str, tuple[type, Make]]:
    """Kind → (type in the API's format, function that converts it)."""
    return {
        "Pod": (wire.Pod, reader.pod),
        "Node": (wire.Node, reader.node),
        "DaemonSet": (wire.DaemonSet, reader.daemon_set),
        "Job": (wire.Job, reader.job),
        "JobSet": (wire.JobSet, reader.job_set),
        "PodGroup": (wire.PodGroup, reader.pod_group),
        "Workload": (wire.Workload, reader.workload),
        "ResourceFlavor": (wire.ResourceFlavor, reader.flavor),
        "ClusterQueue": (wire.Quota, reader.quota),
        "Cohort": (wire.Quota, reader.quota),
        "LocalQueue": (wire.LocalQueue, reader.local_queue),
        "ProvisioningRequest": (wire.ProvisioningRequest, reader.provisioning_request),
        "PodTemplate": (wire.PodTemplate, reader.pod_template),
        "PodDisruptionBudget": (wire.PodDisruptionBudget, reader.budget),
        "PersistentVolumeClaim": (wire.PersistentVolumeClaim, reader.claim),
        "PersistentVolume": (wire.PersistentVolume, reader.volume),
        "StorageClass": (wire.StorageClass, reader.storage),
        "CSINode": (wire.CSINode, reader.csi_node),
        "Namespace": (wire.Namespace, reader.namespace),
        "PriorityClass": (wire.PriorityClass, reader.priority),
    }


def ours(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """Our own annotations."""
    return {
        key: value for key, value in (annotations or {}).items() if key in _READ or key.startswith(f"{OURS}/")
    }


def _refused(conditions: Raw) -> str:
    """The scheduler's message in one line (condition ``PodScheduled``)."""
    if bytes(conditions) in (b"", b"null"):
        return ""
    for each in _conditions.decode(conditions):
        if each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable":
            # Many pods have the same message.
            return sys.intern(" ".join((each.message or "").split())[:_WORDS])
    return ""


def _noted(notes: wire.Notes) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, key in _NOTES.items():
        value: str | None = getattr(notes, field)
        if value is not None:
            found[key] = value
    return found


def _owner(references: Iterable[wire.Reference] | None) -> Owner | None:
    for each in references or ():
        if each.controller:
            return Owner(each.kind, each.name, each.uid)
    return None


def _time(found: datetime | None) -> float | None:
    return None if found is None else found.timestamp()


def _or_one(number: int | None) -> int:
    return 1 if number is None else max(0, number)


def _holds(conditions: Iterable[wire.Condition] | None, *types: str) -> bool:
    return any(each.type in types and each.status == "True" for each in conditions or ())


def _since(conditions: Iterable[wire.Condition] | None, kind: str) -> float | None:
    """When a condition became true; None if it is not."""
    for each in conditions or ():
        if each.type == kind and each.status == "True":
            return _time(each.last_transition_time) or 0.0
    return None


def _ordered(found: wire.Workload) -> float:
    """The time by which Kueue orders a Workload: its creation, or its last requeuing by a check or because
    its pods did not start in time (Kueue, ``workload.Ordering``)."""
    conditions = (found.status or wire.WorkloadStatus()).conditions
    for each in conditions or ():
        if each.type == "Evicted" and each.status == "True" and each.reason in _SENT_BACK:
            return _time(each.last_transition_time) or 0.0
    return _time(found.metadata.creation_timestamp) or 0.0


def _left(spec: wire.WorkloadSpec, status: wire.WorkloadStatus) -> float | None:
    most = spec.maximum_execution_time_seconds
    return None if most is None else max(0.0, most - (status.accumulated_past_execution_time_seconds or 0))


def _usage(admission: wire.Admission | None) -> tuple[tuple[str, str, int], ...]:
    found: dict[tuple[str, str], int] = {}
    for each in (admission.pod_set_assignments if admission is not None else None) or ():
        flavors = each.flavors or {}
        for name, amount in (each.resource_usage or {}).items():
            if name in flavors:
                key = flavors[name], name
                found[key] = found.get(key, 0) + asked(name, amount)
    return tuple((flavor, name, amount) for (flavor, name), amount in sorted(found.items()))


def _local(volumes: Iterable[wire.Volume], safe: str | None) -> bool:
    """Whether data is lost if the pod leaves its node. Volumes in memory are excluded, as they are lost with
    any restart."""
    kept = {name.strip() for name in safe.split(",")} if safe else ()
    return any(
        (
            (each.empty_dir is not None and each.empty_dir.medium != "Memory")
            or bytes(each.host_path) not in (b"", b"null")
        )
        and each.name not in kept
        for each in volumes
    )


def _allocatable(found: wire.Amounts | None) -> dict[str, int]:
    """Invalid amounts are left out."""
    read: dict[str, int] = {}
    for name, text in (found or {}).items():
        try:
            read[name] = offered(name, text)
        except ValueError:
            continue
    return read


def _zoned(terms: tuple[NodeTerm, ...], labels: Mapping[str, str]) -> tuple[NodeTerm, ...]:
    """Old volumes have their zones in labels, several as ``a__b`` (scheduler plugin VolumeZone)."""
    found = {CURRENT.get(key, key): value for key, value in labels.items()}
    more = tuple(
        Requirement(key, "In", tuple(sorted(found[key].split("__"))))
        for key in (REGION, ZONE)
        if key in found
    )
    if not more:
        return terms
    return tuple(NodeTerm((*each.labels, *more), each.fields) for each in terms) or (NodeTerm(more),)
