"""``rerun --exact``: what a run starts with again, and what its report says, for the rendered cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest
from golden_clusters import golden

from causeway.cluster.fit import fit
from causeway.cluster.jobset import Submission, jobset
from causeway.cluster.offer import Offer, parse
from causeway.commands.repeating import repeated
from causeway.job import Job
from causeway.overview import Known
from causeway.series import Usage
from causeway.workers import workers_of
from infra.render.kubernetes import research

_DIGEST = f"docker.io/pytorch/pytorch@sha256:{'1' * 64}"


@pytest.fixture(scope="module")
def offer() -> Offer:
    found = research.objects(golden("research"))["cluster.yaml"][0]["data"]["cluster.json"]
    return parse(json.loads(found))


def known(job: dict[str, Any], **more: Any) -> Known:
    made = Job.model_validate({"name": "x", "run": "python t.py", **job})
    values: dict[str, Any] = {"image": "pytorch/pytorch:2.9", "parameters": {}, "code": "", **more}
    return Known(name="x-1", where="user-ada", state="done", since=0, seconds=0, job=made, **values)


def subjects(report: list[str]) -> set[str]:
    return {line.partition(":")[0] for line in report}


def test_all_that_is_known_is_the_same(offer: Offer) -> None:
    usage = {"worker-0": Usage(("NVIDIA TITAN X (Pascal)",), "550.54")}
    before = known(
        {"seed": 7, "python": "requirements.txt"},
        digest=_DIGEST, gpu_models=["titan-x-pascal"], packages=["numpy==1.0"], usage=usage,
    )  # fmt: skip
    job, repeats, report = repeated(before, offer)
    assert subjects(report) == {"driver", "files", "numbers"}
    fits = [fit(job, each, offer) for each in workers_of(job)]
    made = jobset(Submission("x-2", "user-ada", "ada", job, fits, offer, "0" * 64, repeats=repeats))
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert {each["image"] for each in pod["containers"]} == {_DIGEST}
    assert pod["nodeSelector"]["causeway.dev/gpu-model"] == "titan-x-pascal"
    fetch = next(each for each in pod["initContainers"] if each["name"] == "code")
    given = {each["name"]: each["value"] for each in fetch["env"]}
    assert json.loads(given["CAUSEWAY_PACKAGES_EXACTLY"]) == ["numpy==1.0"]
    own = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert own["CAUSEWAY_SEED"] == "7"


@pytest.mark.parametrize(
    ("job", "more", "subject"),
    [
        ({}, {"digest": ""}, "image"),
        ({"seed": None}, {}, "seed"),
        ({}, {"gpu_models": []}, "GPUs"),
        ({}, {"gpu_models": ["titan-x-pascal", "v100"]}, "GPUs"),
        ({}, {"gpu_models": ["sold"]}, "GPUs"),
        ({"python": "requirements.txt"}, {}, "packages"),
        ({"secrets": {"hub": "TOKEN"}}, {}, "secrets"),
        ({}, {"continues": ["w-1"]}, "checkpoints"),
    ],
)
def test_what_is_not_known_or_not_there_is_in_the_report(
    offer: Offer, job: dict[str, Any], more: dict[str, Any], subject: str
) -> None:
    about = {"digest": _DIGEST, "gpu_models": ["titan-x-pascal"], **more}
    again, _, report = repeated(known({"seed": 7, **job}, **about), offer)
    assert subjects(report) == {subject, "files", "numbers"}
    assert again.gpus.model == ("titan-x-pascal" if subject != "GPUs" else None)
