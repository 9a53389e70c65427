"""Which pods must run together (gangs), as declared by several kinds of objects.

The first of these that applies:

- the provisioning request that the pod says it consumes (``…/consume-provisioning-request``);
- ``causeway.dev/gang: "false"`` on the pod, its Job or its JobSet: no gang;
- its PodGroup: of Kubernetes, of scheduler-plugins, or Kueue's group of plain pods;
- its JobSet;
- a Kueue Workload with a ``minCount``;
- its Job, if it is indexed and runs all of its (several) completions in parallel;
- any other Job or owner with ``causeway.dev/gang: "true"``; by default its pods are independent;
- a Kueue Workload of another kind of job.

The needs of an object count from its first pod on, as before that it is unknown whether there will be any.
Only a provisioning request is meant to be answered earlier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from infra.autoscaler.observed.decoding import facts
from infra.autoscaler.observed.decoding.objects import (
    CONSUMES,
    GANG,
    GANG_ACROSS,
    GANG_MIN,
    KUEUE_GROUP,
    KUEUE_SERVING,
    KUEUE_TOTAL,
    KUEUE_WORKLOAD,
)
from infra.autoscaler.observed.snapshot import Gang, GangSet, Owner, Pod, Shape

JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
PODSET: Final = "kueue.x-k8s.io/podset"
CLASS: Final = "provisioningClassName"
"""Among a gang's parameters: the class of its provisioning request."""
_GROUPS: Final = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
)
_LEAST: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
"""Beside the last of these labels: the minimum number of pods, if there is no object."""

Caches: TypeAlias = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Found:
    """Gangs, and the gang of each pod."""

    gangs: Mapping[str, Gang]
    keys: Mapping[str, str]
    """Pod uid → key of its gang."""
    faults: Mapping[str, str]


def find(caches: Caches, pods: Iterable[Pod], provisioning_class: str | None = None) -> Found:
    """All gangs of pods, and those of provisioning requests of a class; None for any class."""
    world = _World(caches, provisioning_class)
    keys: dict[str, str] = {}
    members: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if not pod.daemon and (key := world.key(pod)) is not None:
            keys[pod.uid] = key
            members[key].append(pod)
    for name in world.requests:
        members.setdefault(f"ProvisioningRequest/{name}", [])
    gangs: dict[str, Gang] = {}
    faults: dict[str, str] = {}
    for key, found in members.items():
        try:
            gangs[key] = world.gang(key, found)
        except LookupError as error:
            faults[key] = str(error.args[0])
    return Found(gangs, keys, faults)


@dataclass(slots=True)
class _About:
    """What an object declares about its gang."""

    uid: str = ""
    version: str = ""
    created: float | None = None
    parts: Sequence[facts.Part] = ()
    least: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    """The label with which its pods name their part."""


class _World:
    def __init__(self, caches: Caches, provisioning_class: str | None) -> None:
        requests: Mapping[str, facts.ProvisioningRequest] = caches.get("ProvisioningRequest", {})
        self.requests = {
            name: each
            for name, each in requests.items()
            if not each.deleting and provisioning_class in (None, each.kind)
        }
        self._pods: Iterable[Pod] = caches.get("Pod", {}).values()
        self._known: dict[Shape, Shape] | None = None
        self._templates: Mapping[str, facts.Template] = caches.get("PodTemplate", {})
        self._jobs: Mapping[str, facts.Job] = caches.get("Job", {})
        self._job_sets: Mapping[str, facts.JobSet] = caches.get("JobSet", {})
        self._pod_groups: Mapping[str, facts.PodGroup] = caches.get("PodGroup", {})
        self._workloads: Mapping[str, facts.Workload] = caches.get("Workload", {})
        self._classes: Mapping[str, facts.Priority] = caches.get("PriorityClass", {})
        self._of_owner = {
            owner.uid: name
            for name, each in self._workloads.items()
            if each.admitted
            for owner in each.owners
            if owner.uid
        }
        self._default = next((each.value for each in self._classes.values() if each.default), 0)

    # The gang of a pod.

    def key(self, pod: Pod) -> str | None:
        """The key of a pod's gang."""
        notes, place = pod.annotations, pod.namespace
        job = self._job(place, pod.owner)
        if notes:
            consumed = f"{place}/{notes.get(CONSUMES, '')}"
            if consumed in self.requests:
                return f"ProvisioningRequest/{consumed}"
        word = notes.get(GANG) or (job.annotations.get(GANG) if job is not None else None)
        if word == "false":
            return None
        if (group := _group(pod)) is not None:
            known = self._pod_groups.get(group)
            # The object may appear later than its pods, but if it exists, it may declare that they are not a
            # gang.
            return f"PodGroup/{group}" if known is None or known.least is not None else None
        if (job_set := self._job_sets.get(f"{place}/{pod.labels.get(JOBSET, '')}")) is not None:
            return f"JobSet/{place}/{job_set.name}" if job_set.annotations.get(GANG) != "false" else None
        workload = self._workload(pod, job)
        if workload is not None and any(each.least is not None for each in self._workloads[workload].parts):
            return f"Workload/{workload}"
        if job is not None:
            if word == "true" or _together(job):
                return f"Job/{place}/{job.name}"
        elif word == "true" and pod.owner is not None:
            return f"{pod.owner.kind}/{place}/{pod.owner.name}"
        if workload is not None and all(
            each.kind not in ("Job", "JobSet", "Pod") for each in self._workloads[workload].owners
        ):
            return f"Workload/{workload}"
        return None

    def _job(self, namespace: str, owner: Owner | None) -> facts.Job | None:
        if owner is None or owner.kind != "Job":
            return None
        found = self._jobs.get(f"{namespace}/{owner.name}")
        return found if found is not None and found.uid in ("", owner.uid) else None

    def _workload(self, pod: Pod, job: facts.Job | None) -> str | None:
        """The admitted Workload that a pod belongs to, by its own labels or its owners."""
        said = f"{pod.namespace}/{pod.annotations.get(KUEUE_WORKLOAD, '')}"
        if said in self._workloads and self._workloads[said].admitted:
            return said
        for owner in (pod.owner, job.owner if job is not None else None):
            if owner is not None and owner.uid in self._of_owner:
                return self._of_owner[owner.uid]
        return None

    # The needs of a gang.

    def gang(self, key: str, pods: Sequence[Pod]) -> Gang:
        """A gang. Raises LookupError, which says what is missing."""
        kind, _, place = key.partition("/")
        if kind == "ProvisioningRequest":
            return self._requested(key, self.requests[place], pods)
        namespace, _, name = place.partition("/")
        about = self._about(kind, place, pods)
        said = {**_said(pods), **about.annotations}
        least = _number(said.get(GANG_MIN))
        if least is None:
            least = about.least
        return Gang(
            key=key,
            kind=kind,
            namespace=namespace,
            name=name,
            uid=about.uid or next((each.owner.uid for each in pods if each.owner is not None), ""),
            created=min((each.created for each in pods), default=0.0)
            if about.created is None
            else about.created,
            priority=max((each.shape.priority for each in pods), default=0),
            sets=self._sets(about.parts, pods, about.label),
            least=least or 0,
            across=said.get(GANG_ACROSS) == "sites",
            version=about.version,
        )

    def _requested(self, key: str, request: facts.ProvisioningRequest, pods: Sequence[Pod]) -> Gang:
        parts: list[facts.Part] = []
        for name, count in request.sets:
            template = self._templates.get(f"{request.namespace}/{name}")
            if template is None:
                raise LookupError(f"its PodTemplate {name} is not there")
            parts.append(facts.Part(name, count, template))
        said = dict(request.annotations)
        for part in parts:
            said = {**part.template.annotations, **said}
        sets = self._sets(parts, pods, PODSET)
        across = said.get(GANG_ACROSS) or request.parameters.get(GANG_ACROSS.partition("/")[2])
        return Gang(
            key=key,
            kind="ProvisioningRequest",
            namespace=request.namespace,
            name=request.name,
            uid=request.uid,
            created=request.created,
            priority=max((each.shape.priority for each in sets), default=0),
            sets=sets,
            least=_number(said.get(GANG_MIN)) or 0,
            across=across == "sites",
            condition=request.condition,
            since=request.since,
            parameters={**request.parameters, CLASS: request.kind},
            version=request.version,
        )

    def _sets(self, parts: Sequence[facts.Part], pods: Sequence[Pod], label: str) -> tuple[GangSet, ...]:
        """The sets of a gang, with the shapes of its pods if there are any: controllers may add to the
        templates (node selectors of a Kueue flavor, priorities)."""
        sets = []
        for part in parts:
            like = self._like(part, parts, pods, label)
            shape = self._shape(part.template) if like is None else like.shape
            labels = part.template.labels if like is None else like.labels
            sets.append(GangSet(shape, part.count, labels))
        return tuple(sets)

    def _like(
        self, part: facts.Part, parts: Sequence[facts.Part], pods: Sequence[Pod], label: str
    ) -> Pod | None:
        if len(parts) == 1:
            # Pods of finished parts may still exist.
            own = [each for each in pods if each.labels.get(label, part.name) == part.name]
            return min(own, key=lambda each: each.name, default=None)
        shape = self._shape(part.template)
        mine = [each for each in pods if each.shape is shape] or [
            each
            for each in pods
            if each.labels.get(label) == part.name and each.shape.requests == shape.requests
        ]
        return min(mine, key=lambda each: each.name, default=None)

    def _shape(self, template: facts.Template) -> Shape:
        if template.priority_class is None:
            return template.shape
        known = self._classes.get(template.priority_class)
        priority = self._default if known is None else known.value
        if priority == template.shape.priority:
            return template.shape
        if self._known is None:
            self._known = {each.shape: each.shape for each in self._pods}
        shape = msgspec.structs.replace(template.shape, priority=priority)
        return self._known.setdefault(shape, shape)

    # The declarations of each kind of object.

    def _about(self, kind: str, name: str, pods: Sequence[Pod]) -> _About:
        match kind:
            case "Job":
                return self._of_job(name)
            case "JobSet":
                return self._of_job_set(name)
            case "Workload":
                return self._of_workload(name)
            case "PodGroup":
                return self._of_pod_group(name, pods)
            case _:
                return _About()

    def _of_job(self, name: str) -> _About:
        job = self._jobs[name]
        count = 0 if job.idle else job.parallelism
        if job.completions is not None:
            count = min(count, max(0, job.completions - job.succeeded))
        parts = (facts.Part("main", count, job.template),) if job.template is not None and count else ()
        return _About(job.uid, job.version, job.created, parts, annotations=job.annotations)

    def _of_job_set(self, name: str) -> _About:
        found = self._job_sets[name]
        return _About(
            found.uid, found.version, found.created, () if found.idle else found.parts,
            annotations=found.annotations, label=REPLICATED_JOB,
        )  # fmt: skip

    def _of_workload(self, name: str) -> _About:
        found = self._workloads[name]
        least = None
        if any(each.least is not None for each in found.parts):
            least = sum(
                each.count if each.least is None else min(each.least, each.count) for each in found.parts
            )
        return _About(found.uid, found.version, found.created, found.parts, least, found.annotations, PODSET)

    def _of_pod_group(self, name: str, pods: Sequence[Pod]) -> _About:
        found = self._pod_groups.get(name)
        if found is not None:
            return _About(found.uid, found.version, found.created, (), found.least, found.annotations)
        counted = [
            _number(each.annotations.get(KUEUE_TOTAL)) or _number(each.labels.get(_LEAST)) or 0
            for each in pods
        ]
        return _About(least=max(counted, default=0))


def _together(job: facts.Job) -> bool:
    """Whether all pods of a Job run in parallel and are indexed."""
    return job.indexed and job.completions is not None and 1 < job.completions <= job.parallelism


def _group(pod: Pod) -> str | None:
    """``namespace/name`` of a pod's group."""
    if pod.gang is not None:
        return pod.gang.partition("/")[2]
    for label in _GROUPS:
        if (name := pod.labels.get(label)) is not None:
            return f"{pod.namespace}/{name}"
    if pod.annotations.get(KUEUE_SERVING) == "true":
        return None
    name = pod.labels.get(KUEUE_GROUP) or pod.annotations.get(KUEUE_GROUP)
    return f"{pod.namespace}/{name}" if name else None


def _said(pods: Iterable[Pod]) -> dict[str, str]:
    """Annotations of a gang's pods; of the first by name if they differ."""
    said: dict[str, str] = {}
    for pod in sorted((each for each in pods if each.annotations), key=lambda each: each.name, reverse=True):
        said.update({key: pod.annotations[key] for key in (GANG_MIN, GANG_ACROSS) if key in pod.annotations})
    return said


def _number(text: str | None) -> int | None:
    """A number of pods; None for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else None
