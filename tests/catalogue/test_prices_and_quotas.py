from __future__ import annotations

from datetime import date

import pytest

from infra.catalogue import instances, limits, prices, quotas, regions, releases
from infra.catalogue.tables import table


@pytest.mark.parametrize(
    ("name", "usd"),
    [
        # https://aws.amazon.com/ec2/pricing/on-demand/, US East (N. Virginia), Linux
        ("p2.16xlarge", 14.4),
        ("p3.2xlarge", 3.06),
        ("p3dn.24xlarge", 31.212),
        ("g5.12xlarge", 5.672),
        ("m6i.4xlarge", 0.768),
        ("t3.medium", 0.0416),
    ],
)
def test_published_prices(name: str, usd: float) -> None:
    assert prices.on_demand(name, "us-east-1") == pytest.approx(usd, rel=0.001)
    assert prices.on_demand(name, "us-west-2") == prices.on_demand(name, "us-east-1")


@pytest.mark.parametrize(
    ("name", "region", "usd"),
    [
        ("m5.large", "eu-west-1", 0.107),
        ("p3.2xlarge", "eu-west-1", 3.305),
        ("g5.12xlarge", "eu-west-1", 6.33167),
    ],
)
def test_estimates_elsewhere_are_within_a_few_percent(name: str, region: str, usd: float) -> None:
    assert prices.on_demand(name, region) == pytest.approx(usd, rel=0.03)
    assert not prices.exact(region)


def test_every_price_is_of_a_type_and_a_region_that_exist() -> None:
    rows = table("prices")
    families = {name.partition(".")[0] for name in instances.names()}
    assert set(rows["per_vcpu"]) <= families
    assert set(rows["types"]) <= set(instances.names())
    assert set(rows["regions"]) <= set(regions.names())
    assert set(rows["flat"]) <= set(rows["units"])


def test_every_gpu_type_has_a_price_save_those_sold_otherwise() -> None:
    without = {
        name
        for name in instances.names()
        if (found := instances.find(name)) and found.gpus and prices.on_demand(name, "us-west-2") is None
    }
    assert without == {"p5e.48xlarge"}


def test_larger_is_dearer_within_a_family() -> None:
    for family in ("m5", "c6i", "r7g", "g5g", "p2", "p3", "t3"):
        own = [name for name in instances.names() if name.startswith(f"{family}.")]
        by_memory = sorted(own, key=lambda name: (instances.find(name) or pytest.fail(name)).memory_mib)
        hourly = [prices.on_demand(name, "us-east-1") or 0.0 for name in by_memory]
        assert hourly == sorted(hourly), family
        assert all(hourly), family


def test_spot_is_cheaper_where_it_is_sold() -> None:
    for name in ("p3.2xlarge", "g5.xlarge", "m6g.large", "m5.large"):
        on_demand, spot = prices.on_demand(name, "us-west-2"), prices.spot(name, "us-west-2")
        assert on_demand is not None
        assert spot is not None
        assert 0 < spot < on_demand
    assert prices.spot("mac2.metal", "us-west-2") is None


def test_what_has_no_price() -> None:
    assert prices.on_demand("p9.xlarge", "us-west-2") is None
    assert prices.on_demand("m5.large", "nowhere") is None
    assert prices.spot("m5.large", "nowhere") is None
    assert prices.unit("moon_dust_gram", "us-west-2") is None
    assert prices.unit("nat_gateway_hour", "nowhere") is None


def test_prices_of_databases() -> None:
    assert prices.database("db.t4g.small", "us-west-2") == 0.032
    assert (prices.database("db.t4g.small", "eu-central-1") or 0) > 0.032
    assert prices.database("db.t4g.small", "nowhere") is None
    assert prices.database("db.x9.large", "us-west-2") is None


def test_some_units_cost_the_same_everywhere() -> None:
    assert prices.unit("public_ipv4_hour", "eu-central-1") == 0.005
    assert prices.unit("hosted_zone_month", "") == 0.5
    assert (prices.unit("gp3_gb_month", "eu-central-1") or 0) > 0.08


def test_the_table_is_dated() -> None:
    assert date.fromisoformat(prices.DATED) > date(2026, 1, 1)
    with pytest.raises(AttributeError):
        prices.NO_SUCH_THING  # noqa: B018


@pytest.mark.parametrize(
    ("name", "market", "quota", "code"),
    [
        ("p3.2xlarge", "on-demand", "on-demand-p", "L-417A185B"),
        ("p3.2xlarge", "spot", "spot-p", "L-7212CCBC"),
        ("g5.xlarge", "on-demand", "on-demand-g", "L-DB2E81BA"),
        ("m6i.large", "on-demand", "on-demand-standard", "L-1216C47A"),
        ("t3.micro", "spot", "spot-standard", "L-34B43A08"),
        ("u-6tb1.112xlarge", "on-demand", "on-demand-high-memory", "L-43DA4232"),
    ],
)
def test_the_quota_of_a_type(name: str, market: quotas.Market, quota: str, code: str) -> None:
    found = quotas.quota_for(name, market)
    assert found is not None
    assert (found.name, found.code, found.vcpus) == (quota, code, True)


def test_every_type_counts_against_some_quota() -> None:
    for name in instances.names():
        assert (quotas.quota_for(name, "on-demand") is None) == name.startswith("mac"), name


def test_quotas() -> None:
    found = [quotas.find(name) for name in quotas.names()]
    assert all(found)
    codes = [quota.code for quota in found if quota]
    assert len(set(codes)) == len(codes)
    assert quotas.find("on-demand-q") is None
    assert quotas.suggest("on_demand_p") == "on-demand-p"
    assert quotas.suggest("ondemand-standard") == "on-demand-standard"
    vpcs = quotas.find("vpcs")
    assert vpcs is not None
    assert (vpcs.service, vpcs.default, vpcs.vcpus) == ("vpc", 5, False)


def test_limits() -> None:
    characters = {name: limit.characters for name, limit in limits.NAMES.items()}
    assert characters["load-balancer"] == characters["target-group"] == 32
    assert characters["iam-role"] == 64
    assert characters["s3-bucket"] == 63
    assert all(limit.source for limit in limits.NAMES.values())


def test_releases() -> None:
    supported = [
        version
        for version in releases.kubernetes_versions()
        if (found := releases.kubernetes(version)) and found.supported
    ]
    assert len(supported) == 3
    assert list(releases.kubernetes_versions())[-3:] == supported, "the current minor and the two before"
    assert releases.kubernetes("0.9") is None
    noble = releases.ubuntu("24.04")
    assert noble is not None
    assert noble.codename == "noble"
    assert noble.image_name("arm64") == "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server-*"
    assert releases.ubuntu("23.10") is None
    assert list(releases.ubuntu_versions()) == ["22.04", "24.04"]
