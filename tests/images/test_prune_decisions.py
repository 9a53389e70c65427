"""Which images may go: decided without any cloud."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from infra.drive.images.amis import Ami
from infra.drive.images.journal import begun, new_id
from infra.drive.images.prune import Verdict, decide
from infra.drive.images.usage import Use, templates

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
WEST, EAST = "us-west-2", "us-east-1"


def ami(number: int, region: str = WEST, image: str = "gpu") -> Ami:
    """The image of a bake ``number`` days ago."""
    tags = {"image": image, "causeway:bake": f"bake-{number}"}
    name = f"ami-{number:08}{region}"
    return Ami(name, region, name, NOW - timedelta(days=number), "available", tags, (f"snap-{name}",))


def shelf(*amis: Ami) -> dict[str, list[Ami]]:
    return {region: [one for one in amis if one.region == region] for region in (WEST, EAST)}


def gone(verdicts: list[Verdict]) -> list[str]:
    return [verdict.bake for verdict in verdicts if not verdict.stays]


@pytest.mark.parametrize(("keep", "going"), [(0, [1, 2, 3]), (1, [2, 3]), (2, [3]), (3, []), (9, [])])
def test_the_newest_stay(keep: int, going: list[int]) -> None:
    amis = shelf(ami(3), ami(1), ami(2))
    assert gone(decide(amis, {}, {}, keep)) == [f"bake-{number}" for number in going]


def test_each_image_keeps_its_own() -> None:
    amis = shelf(ami(1), ami(2), ami(5, image="cpu"), ami(6, image="cpu"))
    assert gone(decide(amis, {}, {}, 1)) == ["bake-6", "bake-2"]


def test_what_is_locked_or_used_anywhere_stays_everywhere() -> None:
    amis = shelf(ami(1), ami(1, EAST), ami(2), ami(2, EAST), ami(3), ami(3, EAST))
    locked = {ami(3, EAST).id: "environments/research.lock.yaml"}
    used = {WEST: [Use(WEST, ami(2).id, "instance", "i-1")], EAST: []}
    verdicts = {verdict.bake: verdict for verdict in decide(amis, locked, used, 0)}
    assert "environments/research.lock.yaml" in verdicts["bake-3"].why
    assert "instance i-1 (us-west-2)" in verdicts["bake-2"].why
    assert len(verdicts["bake-2"].amis) == 2
    assert gone(list(verdicts.values())) == ["bake-1"]


def test_templates_of_a_group() -> None:
    specification = {"LaunchTemplateId": "lt-1", "Version": "7"}
    mixed = {"LaunchTemplate": {"LaunchTemplateSpecification": specification, "Overrides": [
        {"InstanceType": "p3.8xlarge"}, {"LaunchTemplateSpecification": {"LaunchTemplateId": "lt-2"}},
    ]}}  # fmt: skip
    assert templates({"LaunchTemplate": specification}) == [specification]
    assert templates({"MixedInstancesPolicy": mixed}) == [
        specification,
        {"LaunchTemplateId": "lt-2", "Version": "$Default"},
    ]
    assert templates({"LaunchConfigurationName": "old"}) == []


def test_an_id_tells_when_it_began() -> None:
    assert begun(new_id(NOW)) == NOW
    assert begun("somebody's own") is None
