"""Clients, several regions at once, and botocore's errors in words."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.drive.aws import Aws, AwsError, RegionsError, aws_errors, each_region
from infra.errors import DriveError

KEYS = {"AWS_ACCESS_KEY_ID": "AKIALOCALAWSLOCALAWS", "AWS_SECRET_ACCESS_KEY": "local"}


def refused(code: str, message: str = "") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "DescribeImages")


def test_a_client_is_of_the_region_that_is_asked_for() -> None:
    aws = Aws({**KEYS, "AWS_REGION": "eu-west-1"})
    assert aws.client("ec2", "us-west-2").meta.endpoint_url == "https://ec2.us-west-2.amazonaws.com"
    assert aws.client("ec2").meta.region_name == "eu-west-1"
    assert aws.client("ec2", "us-west-2") is aws.client("ec2", "us-west-2")


def test_endpoints_are_those_of_the_environment_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    env = {
        **KEYS,
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ENDPOINT_URL_AUTO_SCALING": "http://127.0.0.1:7",
    }
    aws = Aws(env)
    assert aws.client("ec2", "us-west-2").meta.endpoint_url == "http://127.0.0.1:9"
    assert aws.client("autoscaling", "us-west-2").meta.endpoint_url == "http://127.0.0.1:7"


def test_credentials_are_those_of_the_profile_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[lab]\naws_access_key_id = AKIAOFTHELAB\naws_secret_access_key = of-the-lab\n"
    )
    (tmp_path / "config").write_text("[profile lab]\nregion = eu-west-1\n")
    env = {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_PROFILE": "lab",
    }
    client: Any = Aws(env).client("ec2")
    assert client.meta.region_name == "eu-west-1"
    assert client._request_signer._credentials.access_key == "AKIAOFTHELAB"
    with pytest.raises(AwsError) as caught, aws_errors("look"):
        Aws({**env, "AWS_PROFILE": "nobody"}).client("ec2")
    assert caught.value.code == "ProfileNotFound"


def test_regions_are_worked_in_at_once_and_told_in_order() -> None:
    together = Barrier(3, timeout=30)

    def work(region: str) -> str:
        together.wait()
        return region.upper()

    assert each_region(["c", "a", "b", "a"], work) == {"c": "C", "a": "A", "b": "B"}
    assert list(each_region(["c", "a", "b"], work)) == ["c", "a", "b"]
    assert each_region([], work) == {}


def test_a_region_that_fails_keeps_no_other_from_its_work() -> None:
    def work(region: str) -> str:
        if region != "b":
            raise DriveError(f"no {region}")
        return "made"

    with pytest.raises(RegionsError) as caught:
        each_region(["c", "a", "b"], work)
    assert str(caught.value) == "c: no c\na: no a"
    assert caught.value.done == {"b": "made"}
    assert list(caught.value.failed) == ["c", "a"]


def test_a_fault_of_ours_in_a_region_is_not_taken_for_one_of_aws() -> None:
    with pytest.raises(ZeroDivisionError):
        each_region(["a", "b"], lambda _: 1 // 0)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "UnauthorizedOperation",
            "allow ec2:DescribeImages ",
        ),
        ("ExpiredToken", "log in"),
        ("RequestLimitExceeded", "too many"),
        ("OptInRequired", "enabled"),
        ("InvalidAMIID.NotFound", "; that image is gone$"),
        ("InternalError", "again"),
    ],
)
def test_what_aws_refuses_is_told_with_what_to_do(code: str, said: str) -> None:
    advice = {"InvalidAMIID.NotFound": "that image is gone"}
    with (
        pytest.raises(AwsError, match=said) as caught,
        aws_errors("look for images", needs=["ec2:DescribeImages"], advice=advice),
    ):
        raise refused(code, "some-secret")
    assert caught.value.code == code
    assert "some-secret" not in str(caught.value)


def test_what_aws_says_is_quoted_where_nothing_secret_was_sent() -> None:
    said = r"\(InvalidAMIID\.NotFound: no image ami-1\)"
    with pytest.raises(AwsError, match=said), aws_errors("look", quoting=True):
        raise refused("InvalidAMIID.NotFound", "no image ami-1")


def test_an_aws_out_of_reach() -> None:
    env = {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    with (
        pytest.raises(AwsError, match="EndpointConnectionError"),
        aws_errors("look"),
    ):
        Aws(env).client("ec2", "us-west-2").describe_regions()


def test_botocores_debug_log_stays_shut_until_the_last_call_ends(caplog: pytest.LogCaptureFixture) -> None:
    """Threads end in any order; none may open it for another."""
    logger = logging.getLogger("botocore")
    begun, go_on = Event(), Event()

    def longer() -> None:
        with aws_errors("wait"):
            begun.set()
            go_on.wait(30)

    with caplog.at_level(logging.DEBUG, "botocore"):
        other = Thread(target=longer)
        with aws_errors("look"):
            other.start()
            assert begun.wait(30)
        assert not logger.isEnabledFor(logging.DEBUG)
        go_on.set()
        other.join()
        assert logger.level == logging.DEBUG
