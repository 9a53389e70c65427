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

CARDS = container({"nvidia.com/gpu": "8"})
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"


def only(found: Snapshot) -> Gang:
    (gang,) = found.gangs.values()
    assert {each.gang for each in found.pods} <= {gang.key}
    return gang


def counts(gang: Gang) -> list[tuple[int, int]]:
    """(cards, pods) of its sets."""
    return [(dict(each.shape.requests).get("nvidia.com/gpu", 0), each.count) for each in gang.sets]


def test_12_an_indexed_job_that_runs_all_at_once() -> None:
    found = joined(Job=[job(of=template(CARDS))], Pod=[of_job(0, containers=[CARDS])])
    gang = only(found)
    assert (gang.key, gang.kind, gang.namespace, gang.name) == (
        "Job/user-ada/train", "Job", "user-ada", "train",
    )  # fmt: skip
    assert (gang.uid, gang.created, gang.least, gang.across) == ("uid-train", AT, 0, False)
    assert counts(gang) == [(8, 4)]
    assert found.pods[0].gang == gang.key
    assert gang.sets[0].shape is found.pods[0].shape


@pytest.mark.parametrize(
    "other",
    [
        {"completionMode": "NonIndexed"},
        {"completions": 100},
        {"completions": 1, "parallelism": 1},
        {"annotations": {"causeway.dev/gang": "false"}},
    ],
)
def test_12_pods_that_come_and_go_one_by_one_are_no_gang(other: dict[str, Any]) -> None:
    found = joined(Job=[job(**other)], Pod=[of_job(0), of_job(1)])
    assert found.gangs == {}
    assert [each.gang for each in found.pods] == [None, None]


def test_12_a_word_on_the_job_or_its_pods_makes_any_job_a_gang() -> None:
    word = {"causeway.dev/gang": "true", "causeway.dev/gang-min": "3", "causeway.dev/gang-across": "sites"}
    said = [
        joined(Job=[job(completionMode="NonIndexed", annotations=word)], Pod=[of_job()]),
        joined(Job=[job(completionMode="NonIndexed", of=template(annotations=word))], Pod=[of_job()]),
        joined(
            Job=[job(completionMode="NonIndexed", annotations={"causeway.dev/gang": "true"})],
            Pod=[of_job(annotations=word)],
        ),
    ]
    for found in said:
        gang = only(found)
        assert (gang.least, gang.across, counts(gang)) == (3, True, [(0, 4)])


def test_12_a_word_on_pods_of_any_owner() -> None:
    word = {"causeway.dev/gang": "true", "causeway.dev/gang-min": "2"}
    pods = [pod(f"p{number}", owner=owner("StatefulSet", "db"), annotations=word) for number in range(3)]
    gang = only(joined(Pod=pods))
    assert (gang.key, gang.sets, gang.least) == ("StatefulSet/user-ada/db", (), 2)
    assert joined(Pod=[pod(annotations=word)]).gangs == {}


def test_12_a_pod_that_wants_out_is_out() -> None:
    found = joined(Job=[job()], Pod=[of_job(0), of_job(1, annotations={"causeway.dev/gang": "false"})])
    assert [each.gang for each in found.pods] == ["Job/user-ada/train", None]


def test_12_what_a_job_still_needs() -> None:
    running = joined(Job=[job(status={"succeeded": 3})], Pod=[of_job()])
    assert counts(only(running)) == [(0, 1)]
    stopped = joined(Job=[job(suspend=True)], Pod=[of_job()])
    assert only(stopped).sets == ()
    over = joined(Job=[job(status={"conditions": [condition("SuccessCriteriaMet")]})], Pod=[of_job()])
    assert only(over).sets == ()


def test_12_before_its_first_pod_nobody_knows_of_a_gang() -> None:
    assert joined(Job=[job()]).gangs == {}


def test_12_pods_of_a_job_by_the_same_name_that_is_gone_are_not_its() -> None:
    stale = {**owner("Job", "train"), "uid": "another"}
    assert joined(Job=[job()], Pod=[pod("train-0", owner=stale)]).gangs == {}


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
    assert early.gated
    assert early.gang is None
    (known,) = _seen_at(AT + 5, Job=[job()], JobSet=[job_set()], Pod=[child]).pods
    assert not known.gated


def job_set(*parts: dict[str, Any], status: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    of_meta = {key: more.pop(key) for key in ("annotations",) if key in more}
    return {
        "metadata": meta("set", **of_meta),
        "spec": {"replicatedJobs": parts, **more},
        "status": status or {},
    }


def part(name: str, replicas: int, pods: int, *containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    spec = job(parallelism=pods, completions=pods, of=template(*containers))["spec"]
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def of_set(
    name: str = "p", replicated: str = "workers", *containers: dict[str, Any], **more: Any
) -> dict[str, Any]:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "set",
        "jobset.sigs.k8s.io/replicatedjob-name": replicated,
    }
    return pod(name, *containers, labels=labels, owner=owner("Job", f"set-{replicated}-0"), **more)


def test_12_a_job_set_needs_all_of_its_jobs() -> None:
    parts = (part("driver", 1, 1), part("workers", 2, 4, CARDS))
    pods = [of_set("d", "driver"), of_set("w", "workers", CARDS)]
    gang = only(joined(JobSet=[job_set(*parts)], Pod=pods))
    assert gang.key == "JobSet/user-ada/set"
    assert counts(gang) == [(0, 1), (8, 8)]
    done = {"replicatedJobsStatus": [{"name": "workers", "succeeded": 1}, {"name": "driver", "succeeded": 1}]}
    assert counts(only(joined(JobSet=[job_set(*parts, status=done)], Pod=pods))) == [(8, 4)]


def test_12_jobs_of_a_set_that_come_after_others_do_not_count_yet() -> None:
    after = [{"name": "prepare", "status": "Complete"}]
    beside = [{"name": "prepare", "status": "Ready"}]
    parts = (
        part("prepare", 1, 1),
        part("train", 1, 4, CARDS, dependsOn=after),
        part("log", 1, 1, dependsOn=beside),
    )
    assert counts(only(joined(JobSet=[job_set(*parts)], Pod=[of_set()]))) == [(0, 1), (0, 1)]
    done = {"replicatedJobsStatus": [{"name": "prepare", "succeeded": 1}]}
    later = joined(JobSet=[job_set(*parts, status=done)], Pod=[of_set()])
    assert counts(only(later)) == [(8, 4), (0, 1)]


def test_12_a_job_set_may_say_that_it_is_none() -> None:
    word = {"causeway.dev/gang": "false"}
    assert joined(JobSet=[job_set(part("w", 1, 4), annotations=word)], Pod=[of_set()]).gangs == {}
    suspended = joined(JobSet=[job_set(part("w", 1, 4), suspend=True)], Pod=[of_set()])
    assert only(suspended).sets == ()


def test_12_a_part_is_as_its_pods_are() -> None:
    parts = (part("driver", 1, 1, container({"cpu": "1"})), part("workers", 1, 4, CARDS))
    chosen = {"nodeSelector": {"causeway.dev/pool": "gpu-p5"}}
    pods = [of_set("a", "driver"), of_set("b", "workers", CARDS, **chosen)]
    gang = only(joined(JobSet=[job_set(*parts)], Pod=pods))
    assert [each.shape.selector for each in gang.sets] == [(), (("causeway.dev/pool", "gpu-p5"),)]
    assert gang.sets[1].labels["jobset.sigs.k8s.io/replicatedjob-name"] == "workers"


@pytest.mark.parametrize(
    "label", ["scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"]
)  # fmt: skip
def test_12_a_pod_group_of_the_scheduler_plugins(label: str) -> None:
    group = {"metadata": meta("ring"), "spec": {"minMember": 3}}
    pods = [pod(f"p{number}", labels={label: "ring"}) for number in range(4)]
    gang = only(joined(PodGroup=[group], Pod=pods))
    assert (gang.key, gang.least, gang.sets, gang.uid) == ("PodGroup/user-ada/ring", 3, (), "uid-ring")


def test_12_a_pod_group_by_labels_alone() -> None:
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "ring",
        "pod-group.scheduling.sigs.k8s.io/min-available": "3",
    }
    gang = only(joined(Pod=[pod("a", labels=labels)]))
    assert (gang.key, gang.least) == ("PodGroup/user-ada/ring", 3)


def test_12_a_pod_group_of_kubernetes() -> None:
    grouped = [pod("a", schedulingGroup={"podGroupName": "ring"})]
    group = {"metadata": meta("ring"), "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    assert only(joined(PodGroup=[group], Pod=grouped)).least == 2
    loose = {"metadata": meta("ring"), "spec": {"schedulingPolicy": {"basic": {}}}}
    found = joined(PodGroup=[loose], Pod=grouped)
    assert (found.gangs, found.pods[0].gang) == ({}, None)
    assert only(joined(Pod=grouped)).least == 0


def test_12_a_group_of_plain_pods_in_kueue() -> None:
    pods = [
        pod(
            f"p{number}",
            labels={"kueue.x-k8s.io/pod-group-name": "ring"},
            annotations={"kueue.x-k8s.io/pod-group-total-count": "4"},
        )
        for number in range(2)
    ]
    gang = only(joined(Pod=pods))
    assert (gang.key, gang.least) == ("PodGroup/user-ada/ring", 4)
    for each in pods:
        each["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-serving"] = "true"
    assert joined(Pod=pods).gangs == {}


def workload(
    *sets: dict[str, Any], of: dict[str, Any], admitted: bool = True, status: dict[str, Any] | None = None
) -> dict[str, Any]:
    conditions = [condition("Admitted", "True" if admitted else "False")]
    return {
        "metadata": meta("wl", owner=of),
        "spec": {"podSets": sets, "active": True},
        "status": {"conditions": conditions, **(status or {})},
    }


def test_12_a_workload_of_a_kind_that_nobody_else_knows() -> None:
    sets = [
        {"name": "master", "count": 1, "template": template()},
        {"name": "worker", "count": 7, "template": template(CARDS)},
    ]
    torch = owner("PyTorchJob", "torch")
    pods = [
        pod("m", owner=torch, labels={"kueue.x-k8s.io/podset": "master"}),
        pod("w", CARDS, owner=torch, labels={"kueue.x-k8s.io/podset": "worker"}, nodeSelector={"a": "b"}),
    ]
    gang = only(joined(Workload=[workload(*sets, of=torch)], Pod=pods))
    assert (gang.key, gang.least, counts(gang)) == ("Workload/user-ada/wl", 0, [(0, 1), (8, 7)])
    assert gang.sets[1].shape.selector == (("a", "b"),)
    assert joined(Workload=[workload(*sets, of=torch, admitted=False)], Pod=pods).gangs == {}


def test_12_a_workload_whose_launcher_is_a_job() -> None:
    mpi = owner("MPIJob", "mpi")
    sets = [{"name": "launcher", "count": 1, "template": template()}]
    launcher = job("mpi-launcher", owner=mpi, completions=1, parallelism=1, completionMode="NonIndexed")
    found = joined(
        Workload=[workload(*sets, of=mpi)],
        Job=[launcher],
        Pod=[of_job(0, "mpi-launcher"), pod("w", owner=mpi)],
    )
    assert only(found).key == "Workload/user-ada/wl"
    assert [each.gang for each in found.pods] == ["Workload/user-ada/wl"] * 2


def test_12_the_least_that_a_workload_may_be_admitted_with() -> None:
    sets = [{"name": "main", "count": 8, "minCount": 3, "template": template(CARDS)}]
    admitted = {"admission": {"podSetAssignments": [{"name": "main", "count": 5}]}}
    train = owner("Job", "train")
    found = joined(
        Workload=[workload(*sets, of=train, status=admitted)],
        Job=[job(completionMode="NonIndexed")],
        Pod=[of_job()],
    )
    gang = only(found)
    assert (gang.key, gang.least, [each.count for each in gang.sets]) == ("Workload/user-ada/wl", 3, [5])


def test_12_a_workload_leaves_plain_jobs_as_they_are() -> None:
    sets = [{"name": "main", "count": 8, "template": template()}]
    plain = job(completionMode="NonIndexed")
    assert (
        joined(Workload=[workload(*sets, of=owner("Job", "train"))], Job=[plain], Pod=[of_job()]).gangs == {}
    )
    indexed = joined(Workload=[workload(*sets, of=owner("Job", "train"))], Job=[job()], Pod=[of_job()])
    assert only(indexed).key == "Job/user-ada/train"


def test_12_a_workload_that_its_pods_name() -> None:
    sets = [{"name": "main", "count": 2, "template": template()}]
    ray = pod("head", owner=owner("RayCluster", "r"), annotations={"kueue.x-k8s.io/workload": "wl"})
    found = joined(Workload=[workload(*sets, of=owner("RayJob", "j"))], Pod=[ray])
    assert only(found).key == "Workload/user-ada/wl"


def request(name: str = "ask", *conditions: dict[str, Any], **more: Any) -> dict[str, Any]:
    of_meta = {key: more.pop(key) for key in ("annotations", "deletionTimestamp") if key in more}
    spec = {
        "provisioningClassName": "batch.causeway.dev",
        "parameters": {"ValidUntilSeconds": "600"},
        "podSets": [{"podTemplateRef": {"name": "ppt"}, "count": 25}],
        **more,
    }
    return {"metadata": meta(name, **of_meta), "spec": spec, "status": {"conditions": list(conditions)}}


PPT = {"metadata": meta("ppt"), "template": template(CARDS, priorityClassName="high")}


def test_12_a_provisioning_request_counts_before_there_are_pods() -> None:
    high = {"metadata": meta("high", namespace=""), "value": 700}
    gang = only(joined(ProvisioningRequest=[request()], PodTemplate=[PPT], PriorityClass=[high]))
    assert gang.key == "ProvisioningRequest/user-ada/ask"
    assert (gang.kind, gang.condition, gang.priority, counts(gang)) == (
        "ProvisioningRequest",
        "",
        700,
        [(8, 25)],
    )
    assert gang.parameters == {"ValidUntilSeconds": "600", "provisioningClassName": "batch.causeway.dev"}
    assert gang.sets[0].shape.priority == 700


def test_12_without_a_class_a_template_has_the_default_priority() -> None:
    classes = [
        {"metadata": meta("batch", namespace=""), "value": 100, "globalDefault": True},
        {"metadata": meta("high", namespace=""), "value": 700},
    ]
    plain = {"metadata": meta("ppt"), "template": template(CARDS)}
    gang = only(joined(ProvisioningRequest=[request()], PodTemplate=[plain], PriorityClass=classes))
    assert gang.priority == 100


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


@pytest.mark.parametrize(
    "key",
    [
        CONSUMES,
        "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
        "autoscaler.x-k8s.io/consume-provisioning-request",
    ],
)
def test_12_pods_that_consume_a_request_are_of_its_gang(key: str) -> None:
    consuming = of_job(0, annotations={key: "ask"}, containers=[CARDS], nodeSelector={"pool": "p5"})
    found = joined(ProvisioningRequest=[request()], PodTemplate=[PPT], Job=[job()], Pod=[consuming])
    gang = only(found)
    assert found.pods[0].gang == gang.key == "ProvisioningRequest/user-ada/ask"
    assert gang.sets[0].shape is found.pods[0].shape
    gone = joined(Job=[job()], Pod=[consuming])
    assert only(gone).key == "Job/user-ada/train"


def test_12_a_request_may_stand_at_several_sites() -> None:
    across = {"causeway.dev/gang-across": "sites"}
    assert only(joined(ProvisioningRequest=[request(annotations=across)], PodTemplate=[PPT])).across
    # Kueue hands annotations provreq.kueue.x-k8s.io/<name> over as parameters, and the template whole.
    handed = request(parameters={"gang-across": "sites"})
    assert only(joined(ProvisioningRequest=[handed], PodTemplate=[PPT])).across
    said = {"metadata": meta("ppt"), "template": template(CARDS, annotations=across)}
    assert only(joined(ProvisioningRequest=[request()], PodTemplate=[said])).across


def test_12_a_request_without_its_template_is_a_fault() -> None:
    found = joined(ProvisioningRequest=[request()])
    assert found.gangs == {}
    assert [*found.faults] == ["ProvisioningRequest/user-ada/ask"]


def test_12_a_request_that_is_being_deleted_is_none() -> None:
    gone = request(deletionTimestamp="2027-01-15T08:00:00Z")
    assert joined(ProvisioningRequest=[gone], PodTemplate=[PPT]).gangs == {}


def test_12_a_request_of_another_class_is_not_for_us() -> None:
    decoder = Decoder()
    caches = {
        kind: decoder.list(kind, listed(*items)).objects
        for kind, items in {
            "ProvisioningRequest": [request(), request("other", provisioningClassName="check-capacity.x")],
            "PodTemplate": [PPT],
            "Pod": [pod(annotations={CONSUMES: "other"})],
        }.items()
    }
    found = snapshot(caches, {}, {}, {}, AT, provisioning_class="batch.causeway.dev")
    assert [*found.gangs] == ["ProvisioningRequest/user-ada/ask"]
    assert found.pods[0].gang is None
    assert len(snapshot(caches, {}, {}, {}, AT).gangs) == 2


def test_12_daemons_are_of_no_gang() -> None:
    word = {"causeway.dev/gang": "true"}
    assert joined(Pod=[pod(owner=owner("DaemonSet", "d"), annotations=word)]).gangs == {}


def test_12_the_priority_is_that_of_its_pods() -> None:
    found = joined(Job=[job()], Pod=[of_job(0, priority=5), of_job(1, priority=7)])
    assert only(found).priority == 7


def test_a_snapshot_is_the_same_for_the_same_objects() -> None:
    decoder = Decoder()
    caches = {
        kind: decoder.list(kind, listed(*items)).objects
        for kind, items in {"Job": [job()], "Pod": [of_job(0), of_job(1)]}.items()
    }
    before = {kind: dict(each) for kind, each in caches.items()}
    assert snapshot(caches, {}, {}, {}, AT) == snapshot(caches, {}, {}, {}, AT)
    assert caches == before
