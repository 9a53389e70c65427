"""What a state still holds of a region that left the spec."""

from __future__ import annotations

from typing import Any

from infra.drive.retired_regions import remains
from infra.drive.unfinished import Creation
from infra.model.places import RetiredRegion

FRANKFURT = RetiredRegion("frankfurt", "frankfurt", "eu-central-1")
DUBLIN = RetiredRegion("eu-west-1", "eu_west_1", "eu-west-1")


def resource(module: str, kind: str, alias: str, *keys: str, mode: str = "managed") -> dict[str, Any]:
    return {
        "module": module,
        "mode": mode,
        "type": kind,
        "name": "this",
        "provider": f'provider["registry.terraform.io/hashicorp/aws"].{alias}',
        "instances": [{"index_key": key} if key else {} for key in keys or ("",)],
    }


STATE = {
    "version": 4,
    "resources": [
        resource("module.us_west_2.module.network", "aws_vpc", "us_west_2"),
        resource("module.frankfurt.module.network", "aws_vpc", "frankfurt"),
        resource("module.frankfurt.module.network", "aws_region", "frankfurt", mode="data"),
        resource("module.peering_frankfurt_us_west_2", "aws_vpc_peering_connection", "frankfurt"),
        resource("module.peering_frankfurt_us_west_2", "aws_route", "us_west_2", "a"),
        resource("module.dns", "aws_route53_zone_association", "us_west_2", "frankfurt", "ohio"),
    ],
}


def test_modules_and_the_association_of_the_zone_remain() -> None:
    assert remains(STATE, [FRANKFURT, DUBLIN]) == {
        "frankfurt": (
            'module.dns.aws_route53_zone_association.this["frankfurt"]',
            "module.frankfurt",
            "module.peering_frankfurt_us_west_2",
        )
    }


def test_a_peering_needs_the_provider_and_what_only_reads_does_not() -> None:
    left = resource("module.peering_frankfurt_us_west_2", "aws_route", "frankfurt", "a")
    data = resource("module.frankfurt.module.network", "aws_region", "frankfurt", mode="data")
    assert remains({"resources": [left, data]}, [FRANKFURT]) == {"frankfurt": (left["module"],)}
    assert remains({}, [FRANKFURT]) == {}


def test_what_an_apply_had_begun_to_create_remains() -> None:
    """The next plan may take it into the state, where it needs the region's provider."""
    provider = 'provider["registry.terraform.io/hashicorp/aws"].'
    network, peering = "module.eu_west_1.module.network", "module.peering_eu_west_1_us_west_2"
    begun = [
        Creation(f"{module}.{kind}.this", module, kind, "this", None, f"{provider}{alias}", 1, "", {}, {})
        for module, kind, alias in (
            (network, "aws_vpc", "eu_west_1"),
            (peering, "aws_vpc_peering_connection", "eu_west_1"),
            ("module.us_west_2.module.network", "aws_vpc", "us_west_2"),
        )
    ]
    assert remains({}, [FRANKFURT, DUBLIN], begun) == {"eu-west-1": ("module.eu_west_1", peering)}
