"""Gangs are recognised, whatever kind of object says that pods belong together."""

from __future__ import annotations

from typing import Any

import pytest
from autoscaler.apiobjects import (
    AT,
    condition,
    container,
    job,
    joined,
    listed,
    meta,
    of_job,
    owner,
    pod,
    template,
)

from infra.autoscaler.observed.decoding import Decoder, snapshot
from infra.autoscaler.observed.snapshot import Gang, Snapshot

Json = dict[str, Any]
Kinds = dict[str, list[Json]]

GPUS = container({"nvidia.com/gpu": "8"})
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
GANG, NO_GANG = {"causeway.dev/gang": "true"}, {"causeway.dev/gang": "false"}
ACROSS = {"causeway.dev/gang-across": "sites"}
WORD = {**GANG, **ACROSS, "causeway.dev/gang-min": "3"}
LOOSE: Json = {"completionMode": "NonIndexed"}
GROUP_NAME = "pod-group.scheduling.sigs.k8s.io"


def only(found: Snapshot) -> Gang:
    (gang,) = found.gangs.values()
    assert {each.gang for each in found.pods} <= {gang.key}
    return gang


def counts(gang: Gang) -> list[tuple[int, int]]:
    """(GPUs, pods) of its sets."""
    return [(dict(each.shape.requests).get("nvidia.com/gpu", 0), each.count) for each in gang.sets]


def job_set(*parts: Json, status: Json | None = None, **more: Any) -> Json:
    of_meta = {key: more.pop(key) for key in ("annotations",) if key in more}
    return {
        "metadata": meta("set", **of_meta),
        "spec": {"replicatedJobs": parts, **more},
        "status": status or {},
    }


def part(name: str, replicas: int, pods: int, *containers: Json, **more: Any) -> Json:
    spec = job(parallelism=pods, completions=pods, of=template(*containers))["spec"]
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def of_set(name: str = "p", replicated: str = "workers", *containers: Json, **more: Any) -> Json:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "set",
        "jobset.sigs.k8s.io/replicatedjob-name": replicated,
    }
    return pod(name, *containers, labels=labels, owner=owner("Job", f"set-{replicated}-0"), **more)


def succeeded(*parts: str) -> Json:
    return {"replicatedJobsStatus": [{"name": name, "succeeded": 1} for name in parts]}


def pod_group(**spec: Any) -> Json:
    return {"metadata": meta("ring"), "spec": spec}


def in_kueue(**more: str) -> list[Json]:
    """Plain pods in a group of Kueue's."""
    words = {"kueue.x-k8s.io/pod-group-total-count": "4", **more}
    labels = {"kueue.x-k8s.io/pod-group-name": "ring"}
    return [pod(f"p{number}", labels=labels, annotations=words) for number in range(2)]


def workload(*sets: Json, of: Json, admitted: bool = True, status: Json | None = None) -> Json:
    conditions = [condition("Admitted", "True" if admitted else "False")]
    return {
        "metadata": meta("wl", owner=of),
        "spec": {"podSets": sets, "active": True},
        "status": {"conditions": conditions, **(status or {})},
    }


def pod_set(name: str, count: int, *containers: Json, **more: Any) -> Json:
    return {"name": name, "count": count, "template": template(*containers), **more}


def request(name: str = "ask", *conditions: Json, **more: Any) -> Json:
    of_meta = {key: more.pop(key) for key in ("annotations", "deletionTimestamp") if key in more}
    spec = {
        "provisioningClassName": "batch.causeway.dev",
        "parameters": {"ValidUntilSeconds": "600"},
        "podSets": [{"podTemplateRef": {"name": "ppt"}, "count": 25}],
        **more,
    }
    return {"metadata": meta(name, **of_meta), "spec": spec, "status": {"conditions": list(conditions)}}


def pod_template(**more: Any) -> Json:
    return {"metadata": meta("ppt"), "template": template(GPUS, **more)}


PPT = pod_template(priorityClassName="high")
TORCH, MPI = owner("PyTorchJob", "torch"), owner("MPIJob", "mpi")
TORCH_SETS = (pod_set("master", 1), pod_set("worker", 7, GPUS))
TORCH_PODS = [
    pod("m", owner=TORCH, labels={"kueue.x-k8s.io/podset": "master"}),
    pod("w", GPUS, owner=TORCH, labels={"kueue.x-k8s.io/podset": "worker"}, nodeSelector={"a": "b"}),
]
LAUNCHER = job("mpi-launcher", owner=MPI, completions=1, parallelism=1, **LOOSE)
TRAIN = (part("driver", 1, 1), part("workers", 2, 4, GPUS))
LATER = (
    part("prepare", 1, 1),
    part("train", 1, 4, GPUS, dependsOn=[{"name": "prepare", "status": "Complete"}]),
    part("log", 1, 1, dependsOn=[{"name": "prepare", "status": "Ready"}]),
)
SET_PODS = [of_set("d", "driver"), of_set("w", "workers", GPUS)]
JOB, SET, RING, WL = (
    "Job/user-ada/train",
    "JobSet/user-ada/set",
    "PodGroup/user-ada/ring",
    "Workload/user-ada/wl",
)


def gang_of(
    name: str, key: str, least: int, sets: list[tuple[int, int]], across: bool = False, **kinds: Any
) -> Any:
    return pytest.param(kinds, key, least, sets, across, id=name)


@pytest.mark.parametrize(
    ("kinds", "key", "least", "sets", "across"),
    [
        gang_of("an indexed job", JOB, 0, [(8, 4)], Job=[job(of=template(GPUS))],
            Pod=[of_job(0, containers=[GPUS])]),
        gang_of("a word on the job", JOB, 3, [(0, 4)], True, Job=[job(annotations=WORD, **LOOSE)],
            Pod=[of_job()]),
        gang_of("a word on its template", JOB, 3, [(0, 4)], True,
            Job=[job(of=template(annotations=WORD), **LOOSE)], Pod=[of_job()]),
        gang_of("and on its pods", JOB, 3, [(0, 4)], True, Job=[job(annotations=GANG, **LOOSE)],
            Pod=[of_job(annotations=WORD)]),
        gang_of("a word on pods of any owner", "StatefulSet/user-ada/db", 3, [], True,
            Pod=[pod(annotations=WORD, owner=owner("StatefulSet", "db"))]),
        gang_of("what a job still needs", JOB, 0, [(0, 1)], Job=[job(status={"succeeded": 3})],
            Pod=[of_job()]),
        gang_of("a job that is suspended", JOB, 0, [], Job=[job(suspend=True)], Pod=[of_job()]),
        gang_of("a job that is over", JOB, 0, [],
            Job=[job(status={"conditions": [condition("SuccessCriteriaMet")]})], Pod=[of_job()]),
        gang_of("a job set", SET, 0, [(0, 1), (8, 8)], JobSet=[job_set(*TRAIN)], Pod=SET_PODS),
        gang_of("what a job set still needs", SET, 0, [(8, 4)],
            JobSet=[job_set(*TRAIN, status=succeeded("workers", "driver"))], Pod=SET_PODS),
        gang_of("jobs that come after others", SET, 0, [(0, 1), (0, 1)], JobSet=[job_set(*LATER)],
            Pod=[of_set()]),
        gang_of("jobs whose time has come", SET, 0, [(8, 4), (0, 1)],
            JobSet=[job_set(*LATER, status=succeeded("prepare"))], Pod=[of_set()]),
        gang_of("a job set that is suspended", SET, 0, [], JobSet=[job_set(*TRAIN, suspend=True)],
            Pod=[of_set()]),
        gang_of("a pod group of the plugins of old", RING, 3, [], PodGroup=[pod_group(minMember=3)],
            Pod=[pod(labels={"scheduling.x-k8s.io/pod-group": "ring"})]),
        gang_of("a pod group of the plugins", RING, 3, [], PodGroup=[pod_group(minMember=3)],
            Pod=[pod(labels={GROUP_NAME: "ring"})]),
        gang_of("a pod group by labels alone", RING, 3, [],
            Pod=[pod(labels={f"{GROUP_NAME}/name": "ring", f"{GROUP_NAME}/min-available": "3"})]),
        gang_of("a pod group of Kubernetes", RING, 2, [],
            PodGroup=[pod_group(schedulingPolicy={"gang": {"minCount": 2}})],
            Pod=[pod(schedulingGroup={"podGroupName": "ring"})]),
        gang_of("one that is not seen yet", RING, 0, [], Pod=[pod(schedulingGroup={"podGroupName": "ring"})]),
        gang_of("a group of plain pods in Kueue", RING, 4, [], Pod=in_kueue()),
        gang_of("a workload of an unknown kind", WL, 0, [(0, 1), (8, 7)],
            Workload=[workload(*TORCH_SETS, of=TORCH)], Pod=TORCH_PODS),
        gang_of("a workload whose launcher is a job", WL, 0, [(0, 1)],
            Workload=[workload(pod_set("launcher", 1), of=MPI)], Job=[LAUNCHER],
            Pod=[of_job(0, "mpi-launcher"), pod("w", owner=MPI)]),
        gang_of(
            "the least that it is admitted with",
            WL,
            3,
            [(0, 5)],
            Workload=[
                workload(
                    pod_set("main", 8, minCount=3),
                    of=owner("Job", "train"),
                    status={"admission": {"podSetAssignments": [{"name": "main", "count": 5}]}},
                )
            ],
            Job=[job(**LOOSE)],
            Pod=[of_job()],
        ),
        gang_of("a workload of an indexed job", JOB, 0, [(0, 4)],
            Workload=[workload(pod_set("main", 8), of=owner("Job", "train"))], Job=[job()], Pod=[of_job()]),
        gang_of("a workload that its pods name", WL, 0, [(0, 2)],
            Workload=[workload(pod_set("main", 2), of=owner("RayJob", "j"))],
            Pod=[pod("head", owner=owner("RayCluster", "r"), annotations={"kueue.x-k8s.io/workload": "wl"})]),
        gang_of("a request before there are pods", "ProvisioningRequest/user-ada/ask", 0, [(8, 25)],
            ProvisioningRequest=[request()], PodTemplate=[PPT]),
        gang_of("a request for several sites", "ProvisioningRequest/user-ada/ask", 0, [(8, 25)], True,
            ProvisioningRequest=[request(annotations=ACROSS)], PodTemplate=[PPT]),
        # Kueue hands annotations provreq.kueue.x-k8s.io/<name> over as parameters, and the template whole.
        gang_of("by a parameter", "ProvisioningRequest/user-ada/ask", 0, [(8, 25)], True,
            ProvisioningRequest=[request(parameters={"gang-across": "sites"})], PodTemplate=[PPT]),
        gang_of("by its template", "ProvisioningRequest/user-ada/ask", 0, [(8, 25)], True,
            ProvisioningRequest=[request()],
            PodTemplate=[{"metadata": meta("ppt"), "template": template(GPUS, annotations=ACROSS)}]),
        *(
            gang_of(f"pods that consume a request, by {key}", "ProvisioningRequest/user-ada/ask", 0,
                [(8, 25)], ProvisioningRequest=[request()], PodTemplate=[PPT], Job=[job()],
                Pod=[of_job(0, annotations={key: "ask"}, containers=[GPUS])])
            for key in (
                CONSUMES,
                "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
                "autoscaler.x-k8s.io/consume-provisioning-request",
            )
        ),
        gang_of("pods whose request is gone", JOB, 0, [(0, 4)], Job=[job()],
            Pod=[of_job(0, annotations={CONSUMES: "ask"})]),
    ],
)  # fmt: skip
def test_12_gangs(kinds: Kinds, key: str, least: int, sets: list[tuple[int, int]], across: bool) -> None:
    found = joined(**kinds)
    gang = only(found)
    assert (gang.key, gang.least, counts(gang), gang.across) == (key, least, sets, across)
    assert (gang.kind, gang.namespace, gang.name) == tuple(key.split("/"))
    assert {each.gang for each in found.pods} <= {key}


@pytest.mark.parametrize(
    "kinds",
    [
        {"Job": [job(completionMode="NonIndexed")], "Pod": [of_job()]},
        {"Job": [job(completions=100)], "Pod": [of_job()]},
        {"Job": [job(completions=1, parallelism=1)], "Pod": [of_job()]},
        {"Job": [job(annotations=NO_GANG)], "Pod": [of_job()]},
        {"Job": [job()]},
        {"Job": [job()], "Pod": [pod("train-0", owner={**owner("Job", "train"), "uid": "another"})]},
        {"Pod": [pod(annotations=WORD)]},
        {"Pod": [pod(owner=owner("DaemonSet", "d"), annotations=GANG)]},
        {"JobSet": [job_set(part("w", 1, 4), annotations=NO_GANG)], "Pod": [of_set()]},
        {
            "PodGroup": [pod_group(schedulingPolicy={"basic": {}})],
            "Pod": [pod(schedulingGroup={"podGroupName": "ring"})],
        },
        {"Pod": in_kueue(**{"kueue.x-k8s.io/pod-group-serving": "true"})},
        {"Workload": [workload(*TORCH_SETS, of=TORCH, admitted=False)], "Pod": TORCH_PODS},
        {
            "Workload": [workload(pod_set("main", 8), of=owner("Job", "train"))],
            "Job": [job(**LOOSE)],
            "Pod": [of_job()],
        },
        {"ProvisioningRequest": [request(deletionTimestamp="2027-01-15T08:00:00Z")], "PodTemplate": [PPT]},
    ],
)
def test_12_what_is_no_gang(kinds: Kinds) -> None:
    found = joined(**kinds)
    assert (found.gangs, {each.gang for each in found.pods} - {None}) == ({}, set())


def test_12_a_gang_is_as_its_object_and_its_pods_are() -> None:
    found = joined(
        Job=[job(of=template(GPUS))],
        Pod=[of_job(0, containers=[GPUS], priority=5), of_job(1, containers=[GPUS], priority=7)],
    )
    gang = only(found)
    assert (gang.uid, gang.created, gang.priority) == ("uid-train", AT, 7)


def test_12_a_set_has_the_shape_and_the_labels_of_its_pods() -> None:
    pods = [of_set("a", "driver"), of_set("b", "workers", GPUS, nodeSelector={"pool": "p5"})]
    found = joined(JobSet=[job_set(*TRAIN)], Pod=pods)
    _, workers = only(found).sets
    assert workers.shape.selector == (("pool", "p5"),)
    assert workers.labels["jobset.sigs.k8s.io/replicatedjob-name"] == "workers"
    of_workload = only(joined(Workload=[workload(*TORCH_SETS, of=TORCH)], Pod=TORCH_PODS))
    assert of_workload.sets[1].shape.selector == (("a", "b"),)
    consuming = of_job(0, annotations={CONSUMES: "ask"}, containers=[GPUS], nodeSelector={"pool": "p5"})
    requested = joined(ProvisioningRequest=[request()], PodTemplate=[PPT], Job=[job()], Pod=[consuming])
    assert only(requested).sets[0].shape is requested.pods[0].shape


def test_12_a_pod_that_wants_out_is_out() -> None:
    found = joined(Job=[job()], Pod=[of_job(0), of_job(1, annotations=NO_GANG)])
    assert [each.gang for each in found.pods] == [JOB, None]


def _seen_at(now: float, **kinds: Any) -> Snapshot:
    decoder = Decoder()
    caches = {kind: decoder.list(kind, listed(*items)).objects for kind, items in kinds.items()}
    return snapshot(caches, {}, {}, {}, now)


def test_12_pods_that_are_seen_before_their_job_are_no_work_yet() -> None:
    """The watch of jobs may lag behind that of pods; alone these would start a gang in part."""
    pods = [of_job(0), of_job(1), pod("bare")]
    early = _seen_at(AT + 5, Job=[], Pod=pods)
    assert {each.name: each.gated for each in early.pods} == {"train-0": True, "train-1": True, "bare": False}
    assert not any(each.gated for each in _seen_at(AT + 5, Job=[job()], Pod=pods).pods)
    late = _seen_at(AT + 60, Job=[], Pod=pods)
    assert not any(each.gated for each in late.pods), "who has no Job to wait for is not kept from work"


def test_12_pods_that_are_seen_before_their_job_set_are_no_work_yet() -> None:
    child = of_job(0, labels={"jobset.sigs.k8s.io/jobset-name": "set"})
    (early,) = _seen_at(AT + 5, Job=[job()], JobSet=[], Pod=[child]).pods
    assert (early.gated, early.gang) == (True, None)
    (known,) = _seen_at(AT + 5, Job=[job()], JobSet=[job_set()], Pod=[child]).pods
    assert not known.gated


@pytest.mark.parametrize(("of", "priority"), [(PPT, 700), (pod_template(), 100)])
def test_12_a_request_has_the_priority_of_its_template(of: Json, priority: int) -> None:
    classes = [
        {"metadata": meta("batch", namespace=""), "value": 100, "globalDefault": True},
        {"metadata": meta("high", namespace=""), "value": 700},
    ]
    gang = only(joined(ProvisioningRequest=[request()], PodTemplate=[of], PriorityClass=classes))
    assert (gang.priority, gang.sets[0].shape.priority, gang.condition) == (priority, priority, "")
    assert gang.parameters == {"ValidUntilSeconds": "600", "provisioningClassName": "batch.causeway.dev"}


@pytest.mark.parametrize(
    ("true", "newest"),
    [
        (["Accepted"], "Accepted"),
        (["Provisioned", "Accepted"], "Provisioned"),
        (["Accepted", "Provisioned", "BookingExpired"], "BookingExpired"),
        (["CapacityRevoked", "Accepted", "Provisioned"], "CapacityRevoked"),
        (["Failed", "Accepted"], "Failed"),
        (["Something"], ""),
    ],
)
def test_12_how_far_a_request_has_come(true: list[str], newest: str) -> None:
    conditions = [*map(condition, true), condition("Failed", "False")][: len(true) + ("Failed" not in true)]
    gang = only(joined(ProvisioningRequest=[request("ask", *conditions)], PodTemplate=[PPT]))
    assert (gang.condition, gang.since) == (newest, AT if newest else 0.0)


def test_12_a_request_without_its_template_is_a_fault() -> None:
    found = joined(ProvisioningRequest=[request()])
    assert (found.gangs, [*found.faults]) == ({}, ["ProvisioningRequest/user-ada/ask"])


def test_12_a_request_of_another_class_is_not_for_us() -> None:
    decoder = Decoder()
    kinds = {
        "ProvisioningRequest": [request(), request("other", provisioningClassName="check-capacity.x")],
        "PodTemplate": [PPT],
        "Pod": [pod(annotations={CONSUMES: "other"})],
    }
    caches = {kind: decoder.list(kind, listed(*items)).objects for kind, items in kinds.items()}
    found = snapshot(caches, {}, {}, {}, AT, provisioning_class="batch.causeway.dev")
    assert [*found.gangs] == ["ProvisioningRequest/user-ada/ask"]
    assert found.pods[0].gang is None
    assert len(snapshot(caches, {}, {}, {}, AT).gangs) == 2


def test_a_snapshot_is_the_same_for_the_same_objects() -> None:
    decoder = Decoder()
    kinds = {"Job": [job()], "Pod": [of_job(0), of_job(1)]}
    caches = {kind: decoder.list(kind, listed(*items)).objects for kind, items in kinds.items()}
    before = {kind: dict(each) for kind, each in caches.items()}
    assert snapshot(caches, {}, {}, {}, AT) == snapshot(caches, {}, {}, {}, AT)
    assert caches == before
