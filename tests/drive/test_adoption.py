"""Which of the things in AWS that have the name of a begun creation are taken into the state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from infra.drive import localaws, unfinished
from infra.drive.aws import Aws
from infra.drive.localaws import Server
from infra.drive.unfinished import Creation, Found
from infra.drive.unfinished.model import Seen

TAGS = {"environment": "lab", "cluster": "gpu", "site": "us-west-2"}
VPC = Creation("aws_vpc.this", "", "aws_vpc", "this", None, "", 0, "us-west-2", TAGS, {})


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Mapping[str, str]]:
    """Id → tags of what AWS has of that name."""
    there: dict[str, Mapping[str, str]] = {}

    def look(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
        return ((one, Seen(identifier, tags)) for one in those for identifier, tags in there.items())

    monkeypatch.setattr(unfinished, "LOOKS", {"aws_vpc": (look, ())})
    return there


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"environment": "lab"},
        {"environment": "lab", "cluster": "another"},
        {"environment": "another", "cluster": "gpu"},
    ],
)
def test_what_has_other_tags_is_not_ours(seen: dict[str, Mapping[str, str]], tags: Mapping[str, str]) -> None:
    seen |= {"vpc-theirs": tags}
    assert unfinished.find(Aws({}), [VPC]) == Found(foreign=((VPC, "vpc-theirs"),))


def test_what_was_there_before_is_not_ours_whatever_its_tags(seen: dict[str, Mapping[str, str]]) -> None:
    seen |= {"vpc-1": TAGS, "vpc-2": TAGS}
    before = unfinished.standing(Aws({}), [VPC])
    assert before == ((VPC, "vpc-1"), (VPC, "vpc-2"))
    assert unfinished.standing(Aws({}), [VPC], [("aws_vpc", "vpc-1")]) == ((VPC, "vpc-2"),)

    there = {VPC.address: [identifier for _, identifier in before]}
    assert unfinished.find(Aws({}), [VPC], there=there) == Found(earlier=before)
    seen |= {"vpc-ours": TAGS}
    assert unfinished.find(Aws({}), [VPC], there=there) == Found(ours=((VPC, "vpc-ours"),), earlier=before)


def test_where_nothing_is_there_each_look_finds_nothing(cloud: Server) -> None:
    names = ("name", "bucket", "identifier", "creation_token", "description", "comment")
    values = {**dict.fromkeys(names, "lab-none"), "url": "https://none.lab.example", "key_name": "lab-none"}
    wanted = [
        Creation(f"{kind}.this", "", kind, "this", None, "", 0, "us-west-2", {**TAGS, "Name": "none"}, values)
        for kind in unfinished.LOOKS
    ]
    assert unfinished.standing(Aws(localaws.environment(cloud, "us-west-2")), wanted) == ()
