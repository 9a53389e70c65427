"""What AWS decided: taken from Terraform's outputs, kept, read again."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from infra.drive.build_folders import Folders
from infra.drive.outputs import forget, keep, parse, recall
from infra.errors import DriveError
from infra.model import NO_OUTPUTS
from infra.model.outputs import Addresses, FileSystemIds

VALUES: dict[str, Any] = {
    "vpn_connections": {
        "rack-a-us-west-2": {
            "id": "vpn-1",
            "tunnels": [{"outside": "203.0.113.1"}, {"outside": "203.0.113.2"}],
        },
        "rack-b-us-west-2": {"id": "vpn-2", "tunnels": [{"outside": None}, {"outside": None}]},
    },
    "instances": {
        "vpn-us-west-2": {"id": "i-1", "private_ip": "10.2.48.10", "public_ip": "192.0.2.1"},
        "master-1": {"id": "i-2", "private_ip": "10.2.0.10", "public_ip": None},
    },
    "file_systems": {
        "us-west-2": {
            "home": {"id": "fs-1", "arn": "arn:1", "dns_name": "x", "access_points": {"homes": "fsap-1"}}
        },
        "us-east-1": {},
    },
    "dns": {"zone_id": "Z1"},
    "networks": {
        "us-west-2": {"vpc_id": "vpc-1", "zones": {"usw2-az1": "us-west-2b"}},
        "us-east-1": {"vpc_id": None, "zones": {}},
    },
}


def test_what_was_not_made_yet_is_left_out() -> None:
    outputs = parse(VALUES)
    assert outputs.tunnels == {"rack-a-us-west-2": (IPv4Address("203.0.113.1"), IPv4Address("203.0.113.2"))}
    assert outputs.instances["vpn-us-west-2"] == Addresses(
        IPv4Address("10.2.48.10"), IPv4Address("192.0.2.1")
    )
    assert outputs.instances["master-1"].public is None
    assert outputs.file_systems == {"us-west-2": {"home": FileSystemIds("fs-1", {"homes": "fsap-1"})}}
    assert outputs.zones == {"us-west-2": {"usw2-az1": "us-west-2b"}}
    assert parse({}) == NO_OUTPUTS


def test_a_zone_is_called_as_the_account_calls_it_once_that_is_known() -> None:
    outputs = parse(VALUES)
    assert outputs.zone("us-west-2", "usw2-az1") == "us-west-2b"
    assert outputs.zone("us-east-1", "use1-az1") == "use1-az1"


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    assert recall(folders) == NO_OUTPUTS
    assert keep(folders, VALUES) == recall(folders) == parse(VALUES)
    forget(folders)
    assert recall(folders) == NO_OUTPUTS


@pytest.mark.parametrize(
    "damage", ["", "{", '{"instances": [1]}', '{"instances": {"a": {"private_ip": "x"}}}']
)
def test_a_damaged_file_says_what_to_do(tmp_path: Path, damage: str) -> None:
    folders = Folders(tmp_path)
    keep(folders, VALUES)
    folders.outputs.write_text(damage, encoding="utf-8")
    with pytest.raises(DriveError, match=r"outputs\.json .*`invoke outputs"):
        recall(folders)
