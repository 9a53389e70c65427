"""What a client makes of a cluster's offer: the real one, rendered, and others a version older or newer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from golden_clusters import golden

from causeway.cluster.fit import fit
from causeway.cluster.jobset import Submission, jobset
from causeway.cluster.offer import VERSION, Offer, mounts_of, parse
from causeway.errors import CausewayError, InputError
from causeway.job import Job
from causeway.workers import workers_of
from infra.render.kubernetes import research


def written() -> dict[str, Any]:
    """``cluster.json`` of the golden ``research``."""
    documents = research.objects(golden("research"))["cluster.yaml"]
    found: dict[str, Any] = json.loads(documents[0]["data"]["cluster.json"])
    return found


def offer(**more: Any) -> Offer:
    return parse({**written(), **more})


def job(**fields: Any) -> Job:
    return Job.model_validate({"name": "x", "run": "python t.py", **fields})


def places(made: Job, of: Offer) -> set[str]:
    return {machine.site for machine in fit(made, workers_of(made)[0], of).machines}


def test_both_sides_speak_of_the_same_version() -> None:
    assert research.VERSION == VERSION
    assert offer().note == ""


def test_a_newer_cluster_is_read_and_said_and_a_much_newer_one_is_refused() -> None:
    assert "newer" in offer(version=VERSION + 1, something="new").note
    with pytest.raises(CausewayError, match="pip install"):
        offer(version=VERSION + 2)
    with pytest.raises(CausewayError, match="can't be read"):
        parse({"version": VERSION})


def test_what_all_sites_have_is_mounted_and_what_some_have_is_asked_for() -> None:
    values = written()
    values["mounts"]["results"]["sites"] = ["rack-a", "us-west-2"]
    found = parse(values)

    def paths(made: Job, namespace: str = "user-ada") -> set[str]:
        return {path for _, path in mounts_of(made, namespace, found)}

    assert paths(job()) == {"/home/ada", "/data"}
    assert paths(job(mounts={"home": False, "results": True})) == {"/data", "/results"}
    assert paths(job(), "team-engineers") == {"/data"}
    assert places(job(mounts={"results": True}), found) == {"rack-a", "us-west-2"}
    with pytest.raises(InputError) as raised:
        mounts_of(job(mounts={"attic": True}), "user-ada", found)
    assert raised.value.problems[0].field == "mounts.attic"


def test_the_priority_says_which_gpus() -> None:
    found = offer()
    assert places(job(priority="low"), found) >= {"rack-a", "rack-b"}
    assert not places(job(priority="high"), found) & {"rack-a", "rack-b"}


def test_the_share_of_a_gpu_fits_every_machine_that_may_run_it() -> None:
    found = offer()
    made = job(gpus={"count": 2})
    result = fit(made, workers_of(made)[0], found)
    assert result.machines
    for machine in result.machines:
        assert machine.gpus is not None
        room = machine.gpus.count // 2
        assert room * result.cpus * 1000 <= machine.cpu_milli
        assert room * result.memory <= machine.memory_mib << 20


def expressions(made: Job) -> list[dict[str, Any]]:
    found = offer()
    fits = [fit(made, each, found) for each in workers_of(made)]
    run = jobset(Submission("x-1", "user-ada", "ada", made, fits, found, ""))
    pod = run["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms: list[dict[str, Any]] = required["nodeSelectorTerms"]
    assert len(terms) == 1
    return list(terms[0]["matchExpressions"])


def test_what_a_job_says_of_machines_is_what_the_scheduler_is_told() -> None:
    made = job(gpus={"count": 1, "memory": "10.5 GiB"}, where={"sites": ["us-west-2"], "spot": False})
    assert expressions(made) == [
        {"key": "causeway.dev/site", "operator": "In", "values": ["us-west-2"]},
        {"key": "causeway.dev/capacity-type", "operator": "NotIn", "values": ["spot", "mixed"]},
        {"key": "causeway.dev/gpu-memory-mib", "operator": "Gt", "values": ["10751"]},
    ]
    # The labels are those of the nodes.
    pools = {pool.name: pool.groups[0].labels for pool in golden("research").pools}
    v100 = pools["gpu-p3"]
    assert (v100["causeway.dev/capacity-type"], v100["causeway.dev/gpu-memory-mib"]) == ("mixed", "16384")
    assert {each.pool for each in offer().machines if each.is_spot} == {
        name for name, labels in pools.items() if labels["causeway.dev/capacity-type"] in ("spot", "mixed")
    }


def test_the_code_is_fetched_in_the_stores_region() -> None:
    """botocore reads AWS_DEFAULT_REGION, other SDKs AWS_REGION."""
    found, made = offer(), job()
    fits = [fit(made, each, found) for each in workers_of(made)]
    run = jobset(Submission("x-1", "user-ada", "ada", made, fits, found, "0123"))
    pod = run["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    env = {each["name"]: each["value"] for each in pod["initContainers"][0]["env"]}
    assert env["AWS_DEFAULT_REGION"] == env["AWS_REGION"] == found.store.region


def test_asking_for_more_memory_leaves_out_smaller_machines() -> None:
    found = offer()
    small, large = job(), job(memory="230 GiB")
    assert len(fit(large, workers_of(large)[0], found).machines) < len(
        fit(small, workers_of(small)[0], found).machines
    )
    with pytest.raises(InputError):
        fit(small, workers_of(small)[0], replace(found, machines=[]))
