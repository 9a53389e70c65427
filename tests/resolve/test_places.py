"""Regions, sites and lines, resolved from the reference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from infra.catalogue import endpoints, regions
from infra.catalogue.limits import NAMES
from infra.load import ENVIRONMENT_LENGTH, load
from infra.model.names import aws_name, bucket_name
from infra.resolve.addresses import plan_addresses
from infra.resolve.lockfile import Lock
from infra.resolve.machines import resolve_images
from infra.resolve.numbers import plan_numbers
from infra.resolve.places import resolve_peerings, resolve_regions
from infra.resolve.zones import Zones
from infra.schema import Spec, defaults
from infra.schema.pools import Image
from infra.schema.sites import AwsSite


@pytest.fixture(scope="module")
def spec() -> Spec:
    return load(Path("environments/research.yaml")).spec


@pytest.fixture(scope="module")
def numbers(spec: Spec) -> Mapping[str, int]:
    return plan_numbers(spec, Lock()).numbers


def many(count: int, **network: str) -> Spec:
    fit = [name for name in regions.names() if name not in ("us-west-2", "cn-north-1", "cn-northwest-1")]
    sites = {name: {"kind": "aws"} for name in fit[: count - 1]} | {
        "us-west-2": {"kind": "aws", "primary": True}
    }
    return Spec.model_validate(
        {"version": "1", "name": "many", "domain": "many.internal", "sites": sites, "network": network}
    )


def test_up_to_eight_regions_are_peered_and_more_meet_at_the_primary_regions_transit_gateway() -> None:
    assert (defaults.interconnect(many(8)), len(resolve_peerings(many(8)))) == ("peering", 28)
    nine = many(9)
    assert (defaults.interconnect(nine), defaults.hub(nine)) == ("transit-gateway", "us-west-2")
    joined = resolve_peerings(nine)
    assert len(joined) == 8
    assert all("us-west-2" in (each.requester, each.accepter) for each in joined)
    assert len(resolve_peerings(many(9, interconnect="peering"))) == 36
    assert len(resolve_peerings(many(8, interconnect="transit-gateway"))) == 28


def test_a_vpc_outside_of_the_supernet_has_no_hub() -> None:
    spec = many(9)
    outside = spec.sites["us-west-2"].model_copy(update={"cidr": IPv4Network("192.168.0.0/16")})
    spec = spec.model_copy(update={"sites": {**spec.sites, "us-west-2": outside}})
    assert (defaults.hub(spec), len(resolve_peerings(spec))) == (None, 36)


@pytest.mark.parametrize(
    ("region", "owner"),
    [("eu-west-1", "099720109477"), ("us-gov-west-1", "513442679011"), ("cn-north-1", "837727238323")],
)
def test_ubuntu_is_published_by_another_account_in_each_partition(region: str, owner: str) -> None:
    spec = many(1).model_copy(update={"sites": {region: AwsSite(kind="aws")}, "images": {"cpu": Image()}})
    (image,) = resolve_images(spec, Lock())
    assert image.source.owner == owner


def test_names_of_endpoints_services_in_china() -> None:
    names = {each: endpoints.service_name(each, "cn-north-1", "aws-cn") for each in ("s3", "ssm", "ecr.api")}
    assert names == {
        "s3": "com.amazonaws.cn-north-1.s3",
        "ssm": "com.amazonaws.cn-north-1.ssm",
        "ecr.api": "cn.com.amazonaws.cn-north-1.ecr.api",
    }


def test_long_names_stay_apart_when_they_are_cut() -> None:
    one, two = (aws_name(32, "research", "us-west-2", "a-very-long-thing", end) for end in ("one", "two"))
    assert one != two
    assert max(len(one), len(two)) <= 32
    assert aws_name(32, "local", "", "api") == "local-api"


def test_bucket_names_tell_labs_apart() -> None:
    assert bucket_name("local", "data", "a") != bucket_name("local", "data", "b")
    assert len(bucket_name("e" * 40, "b" * 40, "a")) <= 63


def test_the_longest_names_are_those_that_the_modules_take(spec: Spec, numbers: Mapping[str, int]) -> None:
    modules = Path("templates/terraform/modules")

    def pattern(module: str) -> re.Pattern[str]:
        text = (modules / module / "variables.tf").read_text()
        [found] = re.findall(r'can\(regex\("(.*)", var\.name\)\)', text)
        return re.compile(found)

    environment = "e" * ENVIRONMENT_LENGTH
    assert pattern("identity").match(environment)
    assert not pattern("identity").match(environment + "e")
    blocks = plan_addresses(spec, Lock()).blocks
    for region in resolve_regions(spec, blocks, numbers, Zones({}), environment):
        assert pattern("network").match(region.aws_name)
        assert len(f"{region.aws_name}-flow-logs") <= NAMES["iam-role"].characters
