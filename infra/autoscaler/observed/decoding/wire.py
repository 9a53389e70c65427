"""Objects in the API's format: only the fields that are read.

The fields are from the Kubernetes API reference and from the CRDs of Kueue, JobSet, scheduler-plugins and
Cluster Autoscaler. Parts that equal pods share stay raw bytes: they are compared as such, and decoded once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from infra.autoscaler.observed.quantity import Quantity

Amounts = dict[str, Quantity]
NOTHING = Raw(b"")


class Reference(Struct, gc=False):
    kind: str
    name: str
    uid: str = ""
    controller: bool | None = None


class Notes(Struct, gc=False):
    """Only the annotations of a pod that we use, as annotations can be of any size."""

    gang: str | None = field(default=None, name="causeway.dev/gang")
    gang_min: str | None = field(default=None, name="causeway.dev/gang-min")
    gang_across: str | None = field(default=None, name="causeway.dev/gang-across")
    ends_at: str | None = field(default=None, name="causeway.dev/ends-at")
    safe: str | None = field(default=None, name="cluster-autoscaler.kubernetes.io/safe-to-evict")
    safe_volumes: str | None = field(
        default=None, name="cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    )
    do_not_disrupt: str | None = field(default=None, name="karpenter.sh/do-not-disrupt")
    mirror: str | None = field(default=None, name="kubernetes.io/config.mirror")
    index: str | None = field(default=None, name="batch.kubernetes.io/job-completion-index")
    kueue_group: str | None = field(default=None, name="kueue.x-k8s.io/pod-group-name")
    kueue_serving: str | None = field(default=None, name="kueue.x-k8s.io/pod-group-serving")
    kueue_total: str | None = field(default=None, name="kueue.x-k8s.io/pod-group-total-count")
    kueue_workload: str | None = field(default=None, name="kueue.x-k8s.io/workload")
    consumes: str | None = field(default=None, name="autoscaling.x-k8s.io/consume-provisioning-request")
    consumed: str | None = field(
        default=None, name="cluster-autoscaler.kubernetes.io/consume-provisioning-request"
    )
    consuming: str | None = field(default=None, name="autoscaler.x-k8s.io/consume-provisioning-request")


class Meta(Struct, rename="camel", gc=False):
    """ObjectMeta with raw labels and our annotations."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: Raw = NOTHING
    annotations: Notes | None = None
    owner_references: list[Reference] | None = None


class Container(Struct, rename="camel", gc=False):
    name: str = ""
    resources: Raw = NOTHING
    ports: Raw = NOTHING
    restart_policy: str | None = None


class ClaimSource(Struct, rename="camel", gc=False):
    claim_name: str


class ClaimTemplateSpec(Struct, rename="camel", gc=False):
    storage_class_name: str | None = None


class ClaimTemplate(Struct, gc=False):
    spec: ClaimTemplateSpec | None = None


class EphemeralSource(Struct, rename="camel", gc=False):
    volume_claim_template: ClaimTemplate | None = None


class EmptyDir(Struct, gc=False):
    medium: str | None = None


class Volume(Struct, rename="camel", gc=False):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    empty_dir: EmptyDir | None = None
    host_path: Raw = NOTHING
    ephemeral: EphemeralSource | None = None


class Group(Struct, rename="camel", gc=False):
    """PodSchedulingGroup (1.36)."""

    pod_group_name: str | None = None


class PodSpec(Struct, rename="camel", gc=False):
    node_name: str | None = None
    node_selector: Raw = NOTHING
    affinity: Raw = NOTHING
    tolerations: Raw = NOTHING
    topology_spread_constraints: Raw = NOTHING
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Raw = NOTHING
    resources: Raw = NOTHING
    resource_claims: list[Raw] | None = None
    volumes: list[Volume] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    scheduling_gates: list[Raw] | None = None
    scheduler_name: str | None = None
    scheduling_group: Group | None = None
    host_network: bool | None = None
    termination_grace_period_seconds: int | None = None


class ContainerStatus(Struct, rename="camel", gc=False):
    name: str = ""
    allocated_resources: Raw = NOTHING
    resources: Raw = NOTHING


class PodCondition(Struct, gc=False):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None


class PodStatus(Struct, rename="camel", gc=False):
    phase: str | None = None
    start_time: datetime | None = None
    nominated_node_name: str | None = None
    conditions: Raw = NOTHING
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(Struct, gc=False):
    metadata: Meta
    spec: PodSpec
    status: PodStatus | None = None


class PlainMeta(Struct, rename="camel", gc=False):
    """ObjectMeta of rare kinds: all labels and annotations."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Reference] | None = None


class BareMeta(Struct, rename="camel", gc=False):
    """The metadata of an object that is otherwise invalid."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    owner_references: Raw = NOTHING
    deletion_timestamp: Raw = NOTHING


class Named(Struct, gc=False):
    metadata: BareMeta


class SparePodSpec(Struct, rename="camel", gc=False):
    node_name: str | None = None


class SparePod(Struct, gc=False):
    """The fields of an invalid pod that say whether it occupies a node."""

    metadata: BareMeta
    spec: SparePodSpec


class SpareNodeSpec(Struct, gc=False):
    provider_id: str | None = field(default=None, name="providerID")


class SpareNode(Struct, gc=False):
    """The fields of an invalid node that identify its machine."""

    metadata: BareMeta
    spec: SpareNodeSpec | None = None


# Parts of pods that are kept raw at first.


class Resources(Struct, gc=False):
    requests: Amounts | None = None
    limits: Amounts | None = None


class Port(Struct, rename="camel", gc=False):
    container_port: int = 0
    host_port: int | None = None
    host_ip: str | None = field(default=None, name="hostIP")
    protocol: str | None = None


class Expression(Struct, gc=False):
    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(Struct, rename="camel", gc=False):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class NodeSelectorTerm(Struct, rename="camel", gc=False):
    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeSelector(Struct, rename="camel", gc=False):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class Preference(Struct, gc=False):
    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Struct, gc=False):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[Preference] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Struct, rename="camel", gc=False):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PodAffinity(Struct, gc=False):
    required: list[PodAffinityTerm] | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct, rename="camel", gc=False):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Struct, rename="camel", gc=False):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class SpreadConstraint(Struct, rename="camel", gc=False):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    match_label_keys: list[str] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


# Other kinds.


class Taint(Struct, gc=False):
    key: str
    effect: str
    value: str | None = None


class Condition(Struct, rename="camel", gc=False):
    type: str
    status: str
    last_transition_time: datetime | None = None
    reason: str | None = None


class NodeSpec(Struct, rename="camel", gc=False):
    taints: list[Taint] | None = None
    unschedulable: bool | None = None
    provider_id: str | None = field(default=None, name="providerID")


class NodeStatus(Struct, gc=False):
    allocatable: Amounts | None = None
    conditions: list[Condition] | None = None


class Node(Struct, gc=False):
    metadata: PlainMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class TemplateMeta(Struct, gc=False):
    labels: Raw = NOTHING
    annotations: dict[str, str] | None = None


class Template(Struct, gc=False):
    """PodTemplateSpec."""

    spec: PodSpec
    metadata: TemplateMeta | None = None


class PodTemplate(Struct, gc=False):
    metadata: PlainMeta
    template: Template


class DaemonSetSpec(Struct, gc=False):
    template: Template


class DaemonSet(Struct, gc=False):
    metadata: PlainMeta
    spec: DaemonSetSpec


class JobSpec(Struct, rename="camel", gc=False):
    template: Template
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    suspend: bool | None = None


class JobStatus(Struct, gc=False):
    succeeded: int | None = None
    conditions: list[Condition] | None = None


class Job(Struct, gc=False):
    metadata: PlainMeta
    spec: JobSpec
    status: JobStatus | None = None


class JobTemplate(Struct, gc=False):
    spec: JobSpec


class Dependency(Struct, gc=False):
    name: str
    status: str = ""


class ReplicatedJob(Struct, rename="camel", gc=False):
    name: str
    template: JobTemplate
    replicas: int | None = None
    depends_on: list[Dependency] | None = None


class JobSetSpec(Struct, rename="camel", gc=False):
    replicated_jobs: list[ReplicatedJob] | None = None
    suspend: bool | None = None


class ReplicatedJobStatus(Struct, gc=False):
    name: str
    succeeded: int = 0


class JobSetStatus(Struct, rename="camel", gc=False):
    conditions: list[Condition] | None = None
    terminal_state: str | None = None
    replicated_jobs_status: list[ReplicatedJobStatus] | None = None


class JobSet(Struct, gc=False):
    metadata: PlainMeta
    spec: JobSetSpec
    status: JobSetStatus | None = None


class GangPolicy(Struct, rename="camel", gc=False):
    min_count: int


class Policy(Struct, gc=False):
    gang: GangPolicy | None = None


class PodGroupSpec(Struct, rename="camel", gc=False):
    """PodGroupSpec of scheduler-plugins (``minMember``) and of Kubernetes itself (``schedulingPolicy``)."""

    min_member: int | None = None
    scheduling_policy: Policy | None = None


class PodGroupStatus(Struct, gc=False):
    phase: str | None = None


class PodGroup(Struct, gc=False):
    metadata: PlainMeta
    spec: PodGroupSpec | None = None
    status: PodGroupStatus | None = None


class PodSet(Struct, rename="camel", gc=False):
    template: Template
    name: str = "main"
    count: int = 1
    min_count: int | None = None


class WorkloadSpec(Struct, rename="camel", gc=False):
    pod_sets: list[PodSet] | None = None
    active: bool | None = None
    queue_name: str | None = None
    priority: int | None = None
    maximum_execution_time_seconds: int | None = None


class Assignment(Struct, rename="camel", gc=False):
    name: str = "main"
    count: int | None = None
    flavors: dict[str, str] | None = None
    resource_usage: Amounts | None = None


class Admission(Struct, rename="camel", gc=False):
    cluster_queue: str = ""
    pod_set_assignments: list[Assignment] | None = None


class Reclaimable(Struct, gc=False):
    name: str
    count: int = 0


class WorkloadStatus(Struct, rename="camel", gc=False):
    conditions: list[Condition] | None = None
    admission: Admission | None = None
    accumulated_past_execution_time_seconds: int | None = None
    reclaimable_pods: list[Reclaimable] | None = None


class Workload(Struct, gc=False):
    """A Kueue Workload; v1beta1 and v1beta2 have the same fields here."""

    metadata: PlainMeta
    spec: WorkloadSpec
    status: WorkloadStatus | None = None


class FlavorSpec(Struct, rename="camel", gc=False):
    node_labels: dict[str, str] | None = None
    node_taints: list[Taint] | None = None
    tolerations: list[Toleration] | None = None


class ResourceFlavor(Struct, gc=False):
    metadata: PlainMeta
    spec: FlavorSpec = msgspec.field(default_factory=FlavorSpec)


class ResourceQuota(Struct, rename="camel", gc=False):
    name: str
    nominal_quota: Quantity = "0"


class FlavorQuotas(Struct, gc=False):
    name: str
    resources: list[ResourceQuota] | None = None


class ResourceGroup(Struct, gc=False):
    flavors: list[FlavorQuotas] | None = None


class QuotaSpec(Struct, rename="camel", gc=False):
    """The spec of a ClusterQueue or a Cohort. In v1beta1 the field of the cohort is called ``cohort``."""

    resource_groups: list[ResourceGroup] | None = None
    cohort_name: str | None = None
    cohort: str | None = None
    parent_name: str | None = None


class Quota(Struct, gc=False):
    """A ClusterQueue or a Cohort."""

    metadata: PlainMeta
    spec: QuotaSpec = msgspec.field(default_factory=QuotaSpec)


class LocalQueueSpec(Struct, rename="camel", gc=False):
    cluster_queue: str = ""


class LocalQueue(Struct, gc=False):
    metadata: PlainMeta
    spec: LocalQueueSpec = msgspec.field(default_factory=LocalQueueSpec)


class TemplateReference(Struct, gc=False):
    name: str


class RequestedSet(Struct, rename="camel", gc=False):
    pod_template_ref: TemplateReference
    count: int


class ProvisioningSpec(Struct, rename="camel", gc=False):
    pod_sets: list[RequestedSet]
    provisioning_class_name: str = ""
    parameters: dict[str, str] | None = None


class ProvisioningStatus(Struct, gc=False):
    conditions: list[Condition] | None = None


class ProvisioningRequest(Struct, gc=False):
    metadata: PlainMeta
    spec: ProvisioningSpec
    status: ProvisioningStatus | None = None


class BudgetSpec(Struct, gc=False):
    selector: LabelSelector | None = None


class BudgetStatus(Struct, rename="camel", gc=False):
    disruptions_allowed: int = 0


class PodDisruptionBudget(Struct, gc=False):
    metadata: PlainMeta
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class ClaimSpec(Struct, rename="camel", gc=False):
    volume_name: str | None = None
    storage_class_name: str | None = None


class Phase(Struct, gc=False):
    phase: str | None = None


class PersistentVolumeClaim(Struct, gc=False):
    metadata: PlainMeta
    spec: ClaimSpec
    status: Phase | None = None


class VolumeAffinity(Struct, gc=False):
    required: NodeSelector | None = None


class CSISource(Struct, rename="camel", gc=False):
    driver: str = ""
    volume_handle: str = ""


class VolumeSpec(Struct, rename="camel", gc=False):
    csi: CSISource | None = None
    node_affinity: VolumeAffinity | None = None
    storage_class_name: str | None = None


class PersistentVolume(Struct, gc=False):
    metadata: PlainMeta
    spec: VolumeSpec
    status: Phase | None = None


class TopologyExpression(Struct, gc=False):
    key: str
    values: list[str]


class TopologyTerm(Struct, rename="camel", gc=False):
    match_label_expressions: list[TopologyExpression] | None = None


class StorageClass(Struct, rename="camel", gc=False):
    metadata: PlainMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class Attachable(Struct, gc=False):
    """VolumeNodeResources."""

    count: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None


class CSIDriver(Struct, gc=False):
    name: str
    allocatable: Attachable | None = None


class CSINodeSpec(Struct, gc=False):
    drivers: list[CSIDriver] | None = None


class CSINode(Struct, gc=False):
    """The limits of a node's CSI drivers; it has the node's name."""

    metadata: PlainMeta
    spec: CSINodeSpec


class Namespace(Struct, gc=False):
    metadata: PlainMeta


class PriorityClass(Struct, rename="camel", gc=False):
    metadata: PlainMeta
    value: int
    global_default: bool | None = None


# Lists and watches.

T = TypeVar("T")


class ListMeta(Struct, rename="camel", gc=False):
    resource_version: str = ""
    next_token: str | None = field(default=None, name="continue")


class Page(Struct, Generic[T], gc=False):
    items: list[T] | None = None
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class Change(Struct, gc=False):
    type: str
    object: Raw
