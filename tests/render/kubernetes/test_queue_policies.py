"""What a real API server writes into work for queues: jobs, pods and JobSets, each template by itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from golden_clusters import golden
from kube.api import RefusedError, collection
from kube.plane import Plane
from kube.queues import kinds
from kube_tools import templated
from render.kubernetes.policy_world import job, pod, world
from waiting import until

from infra.render.kubernetes import queue_policies
from infra.render.kubernetes.queue_policies import PREFERRED

ADA = "user-ada"
POOL, CLASS = "causeway.dev/pool", "causeway.dev/gpu-class"
NEAR = {PREFERRED: "kubernetes.io/hostname"}
SMALL = ["gpu-g5", "gpu-p3"]
"""Pools of ``research`` with four GPUs a machine; the others have eight."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("queue-policies")
    with world(golden("research"), folder) as here:
        kinds(here.admin, templated("jobset"))
        for each in queue_policies.policies(golden("research")):
            here.admin.apply(each)
        for form in (lambda each: each, job, job_set):
            until(partial(written, here, form))
        yield here


def job_set(*parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": parts[0]["metadata"],
        "spec": {
            "replicatedJobs": [
                {"name": f"part-{number}", "template": {"spec": job(part)["spec"]}}
                for number, part in enumerate(parts)
            ]
        },
    }


def written(here: Plane, form: Any) -> bool:
    try:
        made = here.admin.create(form(pod("x", ADA, gpus=1, of="low")), dry=True)
    except RefusedError:
        return False
    return all(notes(each) == NEAR for each in templates(made))


def templates(made: dict[str, Any]) -> list[dict[str, Any]]:
    match made["kind"]:
        case "Pod":
            return [made]
        case "Job":
            return [made["spec"]["template"]]
        case _:
            return [each["template"]["spec"]["template"] for each in made["spec"]["replicatedJobs"]]


def notes(template: dict[str, Any]) -> dict[str, str]:
    found = template.get("metadata", {}).get("annotations", {})
    return {key: value for key, value in found.items() if key.startswith("kueue.x-k8s.io/podset-")}


def rules(template: dict[str, Any]) -> list[dict[str, Any]]:
    """What every alternative demands."""
    affinity = template["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    all_of_them = [
        [rule for key in (CLASS, POOL) for rule in term.get("matchExpressions", []) if rule["key"] == key]
        for term in terms
    ]
    assert all(one == all_of_them[0] for one in all_of_them)
    return all_of_them[0] if all_of_them else []


OLD = {"key": CLASS, "operator": "In", "values": ["old"]}
NEWER = {"key": CLASS, "operator": "In", "values": ["new", "standard"]}
LARGE = {"key": POOL, "operator": "NotIn", "values": SMALL}


@pytest.mark.parametrize("form", [lambda each: each, job, job_set], ids=["pod", "job", "JobSet"])
@pytest.mark.parametrize(("gpus", "demands"), [(1, [OLD]), (4, [OLD]), (8, [OLD, LARGE])])
def test_work_with_gpus_is_near_to_itself_and_on_machines_that_are_large_enough(
    here: Plane, form: Any, gpus: int, demands: list[dict[str, Any]]
) -> None:
    (template,) = templates(here.admin.create(form(pod("x", ADA, gpus=gpus, of="low")), dry=True))
    assert notes(template) == NEAR
    assert rules(template) == demands


@pytest.mark.parametrize(
    "asked",
    [
        {"kueue.x-k8s.io/podset-required-topology": "causeway.dev/site"},
        {PREFERRED: "topology.kubernetes.io/zone"},
        {"kueue.x-k8s.io/podset-unconstrained-topology": "true"},
    ],
)
def test_what_a_person_asks_for_stays(here: Plane, asked: dict[str, str]) -> None:
    each = job(pod("x", ADA, gpus=1, of="low"))
    each["spec"]["template"]["metadata"] = {"annotations": asked}
    (template,) = templates(here.admin.create(each, dry=True))
    assert notes(template) == asked


def test_all_alternatives_demand_it(here: Plane) -> None:
    own = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}, {
        "matchExpressions": [{"key": "lab.example/fast", "operator": "Exists"}]
    }]  # fmt: skip
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": own}}
    each = job(pod("x", ADA, gpus=8, of="low", affinity={"nodeAffinity": affinity}))
    (template,) = templates(here.admin.create(each, dry=True))
    assert rules(template) == [OLD, LARGE]


@pytest.mark.parametrize("form", [lambda each: each, job, job_set], ids=["pod", "job", "JobSet"])
def test_work_without_gpus_is_left_as_it_is(here: Plane, form: Any) -> None:
    (template,) = templates(here.admin.create(form(pod("x", ADA, of="low")), dry=True))
    assert notes(template) == {}
    assert not [rule for rule in rules(template) if rule["key"] in (POOL, CLASS)]


def test_each_part_of_a_job_set_by_itself(here: Plane) -> None:
    parts = pod("x", ADA, of="low"), pod("x", ADA, gpus=1, of="low"), pod("x", ADA, gpus=8, of="high")
    first, second, third = templates(here.admin.create(job_set(*parts), dry=True))
    assert (notes(first), rules(first)) == ({}, [])
    assert (notes(second), rules(second)) == (NEAR, [OLD])
    assert (notes(third), rules(third)) == (NEAR, [NEWER, LARGE])


def test_the_policies_are_as_the_api_server_types_them(here: Plane) -> None:
    for each in queue_policies.policies(golden("research")):
        found = here.admin.call("GET", f"{collection(each)}/{each['metadata']['name']}")
        assert not found.get("status", {}).get("typeChecking", {}).get("expressionWarnings")


def selecting(*sites: str) -> dict[str, Any]:
    """The affinity to nodes of these sites."""
    at = {"key": "causeway.dev/site", "operator": "In", "values": list(sites)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [at]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    "where",
    [{"nodeSelector": {"causeway.dev/site": "us-east-1"}}, selecting("us-east-1")],
    ids=("selector", "affinity"),
)
def test_work_that_selects_a_region_goes_to_pools_that_are_there(here: Plane, where: dict[str, Any]) -> None:
    """Of ``research``, gpu-p5 is in us-west-2 alone."""
    for form in (job, job_set):
        (template,) = templates(here.admin.create(form(pod("x", ADA, gpus=8, of="high", **where)), dry=True))
        (excluded,) = (rule["values"] for rule in rules(template) if rule["key"] == POOL)
        assert {"gpu-p5", *SMALL} <= {*excluded}
        (term,) = template["spec"]["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]["nodeSelectorTerms"]
        physical = {"key": "causeway.dev/capacity-type", "operator": "NotIn", "values": ["physical"]}
        assert physical in term["matchExpressions"]


def test_work_for_one_of_several_sites_goes_to_pools_of_any(here: Plane) -> None:
    def excluded(**where: Any) -> set[str]:
        made = here.admin.create(job(pod("x", ADA, gpus=8, of="high", **where)), dry=True)
        (template,) = templates(made)
        found = [rule["values"] for rule in rules(template) if rule["key"] == POOL]
        return {*found[0]} if found else set()

    assert "gpu-p5" not in excluded(**selecting("us-east-1", "us-west-2"))
    assert "gpu-p5" in excluded(**selecting("us-east-1", "rack-a"))
    # One that may go elsewhere by another of its terms.
    open_to_all = selecting("us-east-1")
    terms = open_to_all["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    anything = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    terms["nodeSelectorTerms"].append({"matchExpressions": [anything]})
    assert "gpu-p5" not in excluded(**open_to_all)


def test_work_that_selects_a_rack_goes_to_no_pool(here: Plane) -> None:
    rack = {"causeway.dev/site": "rack-a"}
    (template,) = templates(
        here.admin.create(job(pod("x", ADA, gpus=1, of="low", nodeSelector=rack)), dry=True)
    )
    (excluded,) = (rule["values"] for rule in rules(template) if rule["key"] == POOL)
    assert {*excluded} == {pool.name for pool in golden("research").pools}
