"""The state in S3, with its native lock: real Terraform against moto."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from drive.applying import apply_saved
from moto.s3.exceptions import S3AccessDeniedError
from moto.s3.models import S3Backend

from infra.drive import last_applied, lifecycle, saved_plan, unfinished, workspace
from infra.drive.lifecycle import Job
from infra.drive.terraform import TerraformError
from infra.drive.unfinished import Creation, Found
from infra.errors import DriveError, ToolError

BACKEND = """\
  backend "s3" {
    bucket       = "BUCKET"
    key          = "lab/terraform.tfstate"
    region       = "us-west-2"
    use_lockfile = true
    max_retries  = 4
  }
"""


@pytest.fixture
def job(moto_env: dict[str, str], state_bucket: str, make_job: Callable[..., Job]) -> Job:
    local = make_job()
    main = local.files["terraform/main.tf"]
    start, end = main.index("  backend"), main.index("}\n\nmodule")
    files = {
        **local.files,
        "terraform/main.tf": main[:start] + BACKEND.replace("BUCKET", state_bucket) + main[end:],
    }
    workspace.write(local.build, files)
    return dataclasses.replace(local, files=files, env=moto_env)


def takes_no_state(monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]) -> None:
    """The bucket takes the lock, and no state. (To stop the server would be a race with Terraform.)"""
    stores = S3Backend.put_object

    def refuses(self: S3Backend, bucket_name: str, key_name: str, *args: Any, **more: Any) -> Any:
        if key_name.endswith(".tfstate"):
            raise error()
        return stores(self, bucket_name, key_name, *args, **more)

    monkeypatch.setattr(S3Backend, "put_object", refuses)


def test_a_state_that_could_not_be_stored_is_kept(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle.plan(job, named=["module.us_west_2"])  # in a folder that passes
    assert saved_plan.state_position(job.folders) is None  # so Terraform itself has to find a stale plan
    takes_no_state(monkeypatch, lambda: OSError("the bucket's disk is full"))
    with pytest.raises(TerraformError, match="state push") as caught:
        apply_saved(job, named=["module.us_west_2"])
    kept = job.folders.state / "errored.tfstate"
    assert f"state push {kept}" in str(caught.value)
    assert json.loads(kept.read_text())["resources"]


KEPT = "module.us_west_2.terraform_data.kept"


def refused(job: Job) -> str:
    with pytest.raises(DriveError) as caught:
        lifecycle.plan(job)
    assert not isinstance(caught.value, ToolError)
    assert caught.value.exit_code == 1
    assert saved_plan.load(job.folders) is None
    return str(caught.value)


def test_who_only_plans_is_told_who_can_take_up_what_an_apply_left(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle.plan(job)
    apply_saved(job)
    state = job.terraform().pull()
    (row,) = (one for one in state["resources"] if one["name"] == "kept")
    row["instances"][0] |= {"status": "tainted", "create_before_destroy": True}
    job.terraform().push({**state, "serial": state["serial"] + 1})
    with monkeypatch.context() as limited:
        takes_no_state(limited, S3AccessDeniedError)  # as docs/iam/plan.json has it
        assert KEPT in refused(job)
    assert lifecycle.plan(job).untainted == (KEPT,)

    found = Creation(
        "terraform_data.found", "", "terraform_data", "found", None,
        'provider["terraform.io/builtin/terraform"]', 0, "us-west-2", {}, {},
    )  # fmt: skip
    about = last_applied.about(job.folders) or {}
    last_applied.remember(job.folders, job.files, {**about, "creating": [asdict(found)]})
    monkeypatch.setattr(unfinished, "find", lambda *_: Found(ours=((found, "one"),)))
    with monkeypatch.context() as limited:
        takes_no_state(limited, S3AccessDeniedError)
        assert found.address in refused(job)
    assert lifecycle.plan(job).adopted == (found.address,)
