"""The world and the state: Terraform's AWS provider against moto."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from drive.applying import apply_saved
from moto.server import ThreadedMotoServer

from infra.drive import lifecycle, summary, workspace
from infra.drive.engine import Engine
from infra.drive.lifecycle import Job

pytestmark = pytest.mark.slow

ROOT = """\
terraform {
  required_providers {
    aws = {
      source = "hashicorp/aws"
    }
  }
}

provider "aws" {
  region = "us-west-2"
}

resource "aws_sns_topic" "kept" {
  name         = "NAME-kept"
  display_name = "as we said"
}

resource "aws_sns_topic" "lost" {
  name = "NAME-lost"
}
"""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_drift_is_seen_and_nothing_is_changed(tmp_path: Path, engine: Engine, endpoint: str) -> None:
    name = f"drift-{zlib.crc32(str(tmp_path).encode())}"
    files = {"terraform/main.tf": ROOT.replace("NAME", name)}
    env = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    build = tmp_path / "lab"
    workspace.write(build, files)
    job = Job("lab", build, engine, files, spec="", lock="", env=env)
    lifecycle.plan(job)
    apply_saved(job)
    assert lifecycle.drift(job).exit_code == 0

    library: Any = boto3
    sns = library.client(
        "sns",
        region_name="us-west-2",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    topics = (one["TopicArn"] for one in sns.list_topics()["Topics"])
    kept, lost = sorted(topic for topic in topics if name in topic)
    sns.set_topic_attributes(TopicArn=kept, AttributeName="DisplayName", AttributeValue="by hand")
    sns.delete_topic(TopicArn=lost)

    found = lifecycle.drift(job)
    assert found.exit_code == 2
    assert summary.drift_text(found.changes, environment="lab", options="--env lab").splitlines()[:4] == [
        "lab: 2 resources changed outside of Terraform",
        "  ~ aws_sns_topic.kept",
        '      display_name: "as we said" → "by hand"',
        "  - aws_sns_topic.lost is gone",
    ]
    planned = lifecycle.plan(job).plan
    assert [(one.action, one.address) for one in planned.changes] == [
        ("update", "aws_sns_topic.kept"),
        ("create", "aws_sns_topic.lost"),
    ]
