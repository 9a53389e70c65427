"""What a plan would change, on the picture."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from infra.commands.marks import marks
from infra.drive.plan import Action, Change
from infra.load import load
from infra.model import Cluster
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

RESEARCH = Path(__file__).parents[2] / "environments" / "research.yaml"


@cache
def cluster() -> Cluster:
    return resolve(load(RESEARCH).spec, Lock(), "research")[0]


def change(address: str, action: Action = "create", site: str = "us-west-2") -> Change:
    kind = next(part for part in address.split(".") if part.startswith("aws_"))
    return Change(
        address=address,
        type=kind,
        name="",
        module="",
        site=site,
        actions=(),
        action=action,
        reason="",
        attributes=(),
        loss="",
        previous_address="",
        importing=False,
    )


@pytest.mark.parametrize(
    ("address", "element"),
    [
        ("module.us_west_2.module.network.aws_vpc.this", "us-west-2"),
        (
            'module.us_west_2.module.network.aws_subnet.this["private-us-west-2a"]',
            "us-west-2/subnets/private-us-west-2a",
        ),
        ('module.us_west_2.module.node_pool["gpu-p3"].aws_autoscaling_group.this', "us-west-2/gpu-p3"),
        (
            'module.us_west_2.module.vpn_connections["this"].aws_vpn_connection.this["rack-a-us-west-2"]',
            "link/rack-a-us-west-2",
        ),
        (
            'module.us_west_2.module.vpn_connections["this"].aws_vpn_connection.this["rack-b-far static"]',
            "link/rack-b-far",
        ),
        ('module.us_west_2.module.access.aws_instance.this["login-1"]', "us-west-2/machines/login-1"),
        ('module.us_west_2.module.storage.aws_efs_file_system.this["home"]', "us-west-2/efs/home"),
        ('module.us_west_2.module.storage.aws_s3_bucket.this["datasets"]', "us-west-2/s3/datasets"),
        (
            "module.peering_us_east_1_us_west_2.aws_vpc_peering_connection.this",
            "peering/us-east-1-us-west-2",
        ),
    ],
)
def test_a_resource_marks_what_it_belongs_to(address: str, element: str) -> None:
    assert marks([change(address)], cluster()) == {element: "add"}


def test_the_gravest_change_wins() -> None:
    pool = 'module.us_west_2.module.node_pool["gpu-p3"]'
    found = marks(
        [
            change(f"{pool}.aws_launch_template.this", "replace"),
            change(f"{pool}.aws_autoscaling_group.this", "update"),
        ],
        cluster(),
    )
    assert found == {"us-west-2/gpu-p3": "replace"}


def test_what_only_is_read_marks_nothing() -> None:
    assert marks([change("module.us_west_2.data.aws_ami.source", "read")], cluster()) == {}
