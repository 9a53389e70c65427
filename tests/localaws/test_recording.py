"""What the embedded AWS notes of calls for those who judge them as IAM does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from infra.drive import localaws as process
from infra.drive.localaws import Server
from localaws.control import Control
from localaws.recording import Recorded

REGION = "us-west-2"
OURS = [{"Key": "environment", "Value": "lab"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = process.start(tmp_path_factory.mktemp("recording") / "aws", "recording")
    yield server
    process.stop(server.folder)


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    for name, value in process.environment(server, REGION).items():
        monkeypatch.setenv(name, value)
    session = boto3.session.Session()
    return lambda service: session.client(service)


def tagged(kind: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": OURS}]


def last(server: Server) -> Recorded:
    return Control(server).calls()[-1]


def test_nothing_is_recorded_before_it_is_asked_for(server: Server, client: Callable[[str], Any]) -> None:
    client("ec2").describe_vpcs()
    assert Control(server).calls() == []
    Control(server).record_calls()
    client("sts").get_caller_identity()
    assert [(call.service, call.action, call.region) for call in Control(server).calls()] == [
        ("sts", "GetCallerIdentity", REGION)
    ]
    Control(server).record_calls()
    assert Control(server).calls() == []


def test_a_call_has_the_tags_of_what_it_names_as_they_were(
    server: Server, client: Callable[[str], Any]
) -> None:
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tagged("vpc"))["Vpc"]["VpcId"]
    Control(server).record_calls()
    ec2.create_tags(Resources=[vpc], Tags=[{"Key": "environment", "Value": "other"}])
    assert last(server).tags == {vpc: {"environment": "lab"}}
    ec2.delete_vpc(VpcId=vpc)
    assert last(server).tags == {vpc: {"environment": "other"}}
