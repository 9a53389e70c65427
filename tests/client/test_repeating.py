"""``rerun --exact``: what a run starts with again, and what its report says, for the rendered cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from client.test_offer import offer as offered
from client.test_offer import submission, variables

from causeway.cluster.jobset import jobset
from causeway.cluster.offer import Offer
from causeway.commands.repeating import repeated
from causeway.job import Job
from causeway.overview import Known
from causeway.series import Usage

_DIGEST = f"docker.io/pytorch/pytorch@sha256:{'1' * 64}"


@pytest.fixture(scope="module")
def offer() -> Offer:
    return offered()


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
    made = jobset(replace(submission(job, offer, "0" * 64), repeats=repeats))
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert {each["image"] for each in pod["containers"]} == {_DIGEST}
    assert pod["nodeSelector"]["causeway.dev/gpu-model"] == "titan-x-pascal"
    fetch = next(each for each in pod["initContainers"] if each["name"] == "code")
    assert json.loads(variables(fetch)["CAUSEWAY_PACKAGES_EXACTLY"]) == ["numpy==1.0"]
    assert variables(pod["containers"][0])["CAUSEWAY_SEED"] == "7"


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
