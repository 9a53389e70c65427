"""The state in S3, with its native lock: real Terraform against moto."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from drive.applying import apply_saved
from moto.s3.models import S3Backend
from moto.server import ThreadedMotoServer

from infra.drive import lifecycle, saved_plan, workspace
from infra.drive.lifecycle import Job
from infra.drive.terraform import TerraformError
from infra.errors import StalePlanError

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
def server() -> Iterator[ThreadedMotoServer]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def job(server: ThreadedMotoServer, make_job: Callable[..., Job], tmp_path: Path) -> Job:
    bucket = f"states-{zlib.crc32(str(tmp_path).encode())}"  # moto's memory outlives its server
    host, port = server.get_host_and_port()
    env = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    library: Any = boto3  # it has no annotations
    s3 = library.client(
        "s3",
        region_name="us-west-2",
        endpoint_url=env["AWS_ENDPOINT_URL"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    local = make_job()
    main = local.files["terraform/main.tf"]
    start, end = main.index("  backend"), main.index("}\n\nmodule")
    files = {
        **local.files,
        "terraform/main.tf": main[:start] + BACKEND.replace("BUCKET", bucket) + main[end:],
    }
    workspace.write(local.build, files)
    return dataclasses.replace(local, files=files, env=env)


def test_terraform_itself_finds_a_stale_plan(job: Job) -> None:
    lifecycle.plan(job)
    assert saved_plan.state_position(job.folders) is None
    terraform = job.terraform()
    terraform.plan(job.build / "elsewhere")
    terraform.apply(job.build / "elsewhere")
    with pytest.raises(StalePlanError, match="the state has moved on"):
        apply_saved(job)
    assert saved_plan.load(job.folders) is None


def test_a_state_that_could_not_be_stored_is_kept(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle.plan(job, named=["module.us_west_2"])  # in a folder that passes
    stores = S3Backend.put_object

    def refuses(self: S3Backend, bucket_name: str, key_name: str, *args: Any, **more: Any) -> Any:
        if key_name.endswith(".tfstate"):
            raise OSError("the bucket's disk is full")
        return stores(self, bucket_name, key_name, *args, **more)

    # From here on the bucket takes no state. (To stop the server meanwhile would be a race with Terraform.)
    monkeypatch.setattr(S3Backend, "put_object", refuses)
    with pytest.raises(TerraformError, match="Terraform could not store the state; it is in") as caught:
        apply_saved(job, named=["module.us_west_2"])
    kept = job.folders.state / "errored.tfstate"
    assert f"state push {kept}" in str(caught.value)
    assert json.loads(kept.read_text())["resources"]
