"""Kueue's queues, as the API writes them (v1beta2)."""

from __future__ import annotations

from typing import Any

from autoscaler.apiobjects import AT, condition, container, joined, meta, owner, template

from infra.autoscaler.observed.snapshot import GPU, Holding, Queued, Queues

GPUS = container({"cpu": "1", GPU: "4"})


def queue(name: str = "team-vision", cohort: str = "all", *flavors: dict[str, Any]) -> dict[str, Any]:
    groups = [{"coveredResources": ["cpu", GPU], "flavors": list(flavors)}] if flavors else []
    return {
        "metadata": meta(name, namespace=""),
        "spec": {**({"cohortName": cohort} if cohort else {}), "resourceGroups": groups},
    }


def flavor(name: str, cpu: str, gpus: str) -> dict[str, Any]:
    quotas = [{"name": "cpu", "nominalQuota": cpu}, {"name": GPU, "nominalQuota": gpus}]
    return {"name": name, "resources": quotas}


LOCAL = {"metadata": meta("default"), "spec": {"clusterQueue": "team-vision"}}


def workload(name: str = "wl", *conditions: dict[str, Any], **more: Any) -> dict[str, Any]:
    status = more.pop("status", {})
    return {
        "metadata": meta(name, owner=owner("JobSet", f"of-{name}")),
        "spec": {
            "podSets": [{"name": "main", "count": 2, "template": template(GPUS)}],
            "queueName": "default",
            "priority": 100,
            "maximumExecutionTimeSeconds": 3600,
            **more,
        },
        "status": {"conditions": list(conditions), **status},
    }


def found(*workloads: dict[str, Any], **more: Any) -> Queues:
    more.setdefault("ClusterQueue", [queue("team-vision", "all", flavor("titan", "1500m", "8"))])
    queues = joined(Workload=workloads, LocalQueue=[LOCAL], **more).queues
    assert queues is not None
    return queues


def waiting(*conditions: dict[str, Any], **more: Any) -> Queued:
    (one,) = found(workload("wl", *conditions, **more)).waiting
    return one


ADMISSION = {
    "admission": {
        "clusterQueue": "team-vision",
        "podSetAssignments": [
            {
                "name": name,
                "count": 1,
                "flavors": {"cpu": "titan", GPU: "titan"},
                "resourceUsage": {"cpu": "1500m", GPU: "4"},
            }
            for name in ("main", "other")
        ],
    }
}


def test_without_kueue_there_are_no_queues() -> None:
    assert joined(Pod=[]).queues is None


def test_what_waits() -> None:
    one = waiting(condition("QuotaReserved", "False"))
    assert (one.namespace, one.kind, one.name) == ("user-ada", "JobSet", "of-wl")
    assert (one.queue, one.priority, one.seconds) == ("team-vision", 100, 3600.0)
    assert [(each.count, dict(each.shape.requests)[GPU]) for each in one.sets] == [(2, 4)]


def test_what_has_run_before_has_less_time_left() -> None:
    assert waiting(status={"accumulatedPastExecutionTimeSeconds": 600}).seconds == 3000
    assert waiting(maximumExecutionTimeSeconds=None).seconds is None


def test_a_queue_that_is_not_there() -> None:
    assert waiting(queueName="gone").queue == ""


def test_the_order_is_by_priority_and_then_by_when_it_was_made_or_sent_back() -> None:
    late = "2027-01-15T09:00:00Z"
    back = {**condition("Evicted"), "reason": "AdmissionCheck", "lastTransitionTime": late}
    taken = {**condition("Evicted"), "reason": "Preempted", "lastTransitionTime": late}
    of = found(
        workload("sent-back", back), workload("b"), workload("a", taken), workload("high", priority=500)
    )
    assert [each.name for each in of.waiting] == ["of-high", "of-a", "of-b", "of-sent-back"]


def test_what_has_quota_holds_it_from_when_it_was_admitted() -> None:
    of = found(
        workload("runs", condition("QuotaReserved"), condition("Admitted"), status=ADMISSION),
        workload("soon", condition("QuotaReserved"), status={**ADMISSION}),
    )
    assert of.waiting == ()
    assert {(each.admitted, each.seconds) for each in of.holding} == {(True, 3600.0), (False, 3600.0)}
    one = of.holding[0]
    assert isinstance(one, Holding)
    assert one.quota == "cohort/all"
    assert one.amounts == (("titan", "cpu", 3000), ("titan", GPU, 8))
    assert one.since <= AT


def test_what_is_over_or_stopped_neither_waits_nor_holds() -> None:
    gone = workload("gone")
    gone["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    of = found(
        workload("done", condition("QuotaReserved"), condition("Finished"), status=ADMISSION),
        workload("stopped", active=False),
        gone,
    )
    assert (of.waiting, of.holding) == ((), ())


def test_a_cohort_has_what_its_queues_and_its_cohorts_have() -> None:
    inner = {
        "metadata": meta("inner", namespace=""),
        "spec": {"parentName": "all", "resourceGroups": [{"flavors": [flavor("titan", "1", "2")]}]},
    }
    outer = {"metadata": meta("all", namespace=""), "spec": {}}
    of = found(
        ClusterQueue=[
            queue("team-vision", "all", flavor("titan", "1500m", "8"), flavor("v100", "4", "16")),
            queue("team-audio", "inner", flavor("titan", "1", "4")),
            queue("alone", "", flavor("titan", "1", "1")),
        ],
        Cohort=[inner, outer],
    )
    assert of.quotas["cohort/all"] == {"titan": {"cpu": 3500, GPU: 14}, "v100": {"cpu": 4000, GPU: 16}}
    assert of.quotas["queue/alone"] == {"titan": {"cpu": 1000, GPU: 1}}
    assert of.sources["team-audio"] == "cohort/all"
    assert of.offers["team-vision"] == ("titan", "v100")


def test_cohorts_in_a_circle_stop_nothing() -> None:
    circle = [
        {"metadata": meta(name, namespace=""), "spec": {"parentName": parent}}
        for name, parent in (("a", "b"), ("b", "a"))
    ]
    of = found(ClusterQueue=[queue("team-vision", "a", flavor("titan", "1", "8"))], Cohort=circle)
    assert list(of.sources) == ["team-vision"]


def test_labels_taints_and_tolerations_of_a_flavor() -> None:
    spec = {
        "nodeLabels": {"causeway.dev/pool": "p3", "a": "b"},
        "nodeTaints": [
            {"key": "causeway.dev/no-capacity", "effect": "NoSchedule"},
            {"key": "lab", "value": "x", "effect": "NoSchedule"},
        ],
        "tolerations": [{"key": "lab", "operator": "Exists"}],
    }
    one = joined(ResourceFlavor=[{"metadata": meta("p3", namespace=""), "spec": spec}]).flavors["p3"]
    assert (one.pool, one.held, one.labels["a"]) == ("p3", True, "b")
    assert [each.key for each in one.taints] == ["lab"]
    assert [each.operator for each in one.tolerations] == ["Exists"]
