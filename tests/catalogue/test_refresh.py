from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.catalogue.tables import FOLDER
from infra.drive import catalogue
from infra.drive.catalogue import Tables
from infra.errors import DriveError

GENERATED = ("instances.json", "offers.json", "regions.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A catalogue of one region that AWS has changed since."""
    before = Tables(
        instances={
            "p3.2xlarge": {"vcpus": 8, "memory_mib": 62464, "network": "Up to 10 Gigabit", "nitro": False},
            "m5.large": {"vcpus": 1, "memory_mib": 1, "network": "none yet"},
        },
        offers={
            "p3.2xlarge": {"us-west-2": "ab"},
            "m5.large": {"us-west-2": "a", "cn-north-1": "ab"},
        },
        asked=frozenset({"us-west-2", "cn-north-1"}),
        regions={"us-west-2": {"partition": "aws", "location": "A place", "zones": "a"}},
    )
    catalogue.write(before, tmp_path)
    return tmp_path


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nowhere",
        "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
    }.items():
        monkeypatch.setenv(name, value)


def new_session() -> Any:
    import boto3.session

    session: Any = boto3.session.Session
    return session()


@pytest.fixture
def aws(credentials: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A boto3 session on moto's EC2, over HTTP as on AWS."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    yield new_session()
    server.stop()


def test_what_is_shipped_is_what_the_generator_makes(tmp_path: Path) -> None:
    """Fails with a new moto until the tables are made anew."""
    made = catalogue.from_moto()
    shipped = catalogue.read()
    assert set(made.instances) <= set(shipped.instances)
    assert made.asked <= shipped.asked
    assert set(made.regions) <= set(shipped.regions)
    catalogue.write(shipped, tmp_path)
    for name in GENERATED:
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


def test_a_refresh_over_http(folder: Path, aws: Any) -> None:
    heard: list[str] = []
    catalogue.refresh(["us-west-2"], aws, folder=folder, said=heard.append)

    after = catalogue.read(folder)
    assert after.instances["m5.large"] == {"vcpus": 2, "memory_mib": 8192, "network": "Up to 10 Gigabit"}
    assert after.instances["p4d.24xlarge"]["gpus"] == ["a100-40gb", 8, 40960]
    assert "p3.2xlarge" not in after.instances, "no region offers it any more"
    assert after.offers["m5.large"] == {"us-west-2": "abcd", "cn-north-1": "ab"}
    assert after.asked == {"us-west-2", "cn-north-1"}
    assert after.regions["us-west-2"] == {"partition": "aws", "location": "A place", "zones": "abcd"}
    [line] = heard
    assert {"us-west-2", "4"} <= set(re.findall(r"[\w-]+", line))
    assert sorted(one.name for one in folder.iterdir()) == sorted(GENERATED)


def described(name: str) -> dict[str, Any]:
    return {
        "InstanceType": name,
        "BareMetal": False,
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 8192},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "SupportedUsageClasses": ["on-demand", "spot"],
        "NetworkInfo": {"NetworkPerformance": "10 Gigabit"},
    }


def test_every_page_is_read(credentials: None) -> None:
    """moto answers in one page, AWS in pages of a hundred types."""
    from botocore.stub import Stubber

    client = new_session().client("ec2", region_name="eu-west-1")
    with Stubber(client) as stub:
        stub.add_response("describe_instance_types", {"InstanceTypes": [described("a.x")], "NextToken": "1"})
        stub.add_response(
            "describe_instance_types", {"InstanceTypes": [described("b.x")]}, {"NextToken": "1"}
        )
        by_zone = {"LocationType": "availability-zone"}
        offers = [{"InstanceType": name, "Location": "eu-west-1b"} for name in ("a.x", "b.x")]
        stub.add_response(
            "describe_instance_type_offerings",
            {"InstanceTypeOfferings": offers[:1], "NextToken": "2"},
            by_zone,
        )
        stub.add_response(
            "describe_instance_type_offerings",
            {"InstanceTypeOfferings": offers[1:]},
            {"NextToken": "2", **by_zone},
        )
        zones = [{"ZoneName": "eu-west-1a"}, {"ZoneName": "eu-west-1b"}]
        stub.add_response("describe_availability_zones", {"AvailabilityZones": zones})

        class Session:
            def client(self, service: str, region_name: str) -> Any:
                assert (service, region_name) == ("ec2", "eu-west-1")
                return client

        answer = catalogue._ask("eu-west-1", Session())
    assert set(answer.instances) == {"a.x", "b.x"}
    assert answer.offers == {"a.x": {"eu-west-1": "b"}, "b.x": {"eu-west-1": "b"}}
    assert answer.regions == {
        "eu-west-1": {"partition": "aws", "location": "Europe (Ireland)", "zones": "ab"}
    }


def answer(region: str, zones: str, *types: str) -> Tables:
    return Tables(
        instances={name: catalogue.row_of(described(name)) for name in types},
        offers={name: {region: zones} for name in types},
        asked=frozenset({region}),
        regions={region: {"partition": "aws", "location": "A place", "zones": zones}},
    )


def test_a_refresh_twice_or_in_another_order_is_the_same(folder: Path) -> None:
    before = catalogue.read(folder)
    west, east = answer("us-west-2", "ab", "m5.large", "c9.large"), answer("us-east-1", "abc", "c9.large")
    once = catalogue.merge(catalogue.merge(before, west), east)
    assert once.offers["c9.large"] == {"us-west-2": "ab", "us-east-1": "abc"}
    assert catalogue.merge(catalogue.merge(before, east), west) == once
    assert catalogue.merge(catalogue.merge(once, west), east) == once


def test_a_region_that_does_not_answer_changes_nothing(
    folder: Path, credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: (folder / name).read_bytes() for name in GENERATED}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    asked = catalogue._ask

    def ask(region: str, session: Any) -> Tables:
        return answer(region, "ab", "c9.large") if region == "us-west-2" else asked(region, session)

    monkeypatch.setattr(catalogue, "_ask", ask)
    with pytest.raises(DriveError, match="eu-west-1"):
        catalogue.refresh(["us-west-2", "eu-west-1"], new_session(), folder=folder, said=lambda _: None)
    assert {name: (folder / name).read_bytes() for name in GENERATED} == before


def test_a_write_that_fails_leaves_the_old_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (folder / "instances.json").read_bytes()

    def replace(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="No space"):
        catalogue.write(catalogue.read(), folder)
    assert (folder / "instances.json").read_bytes() == before
    assert sorted(one.name for one in folder.iterdir()) == sorted(GENERATED)


def test_tables_read_well_in_a_diff() -> None:
    lines = (FOLDER / "instances.json").read_text().splitlines()
    rows = lines[1:-1]
    assert len(rows) == len(json.loads("\n".join(lines)))
    assert rows == sorted(rows, key=lambda row: row.partition('":')[0])
    assert max(map(len, rows)) < 250


def test_a_type_that_aws_has_only_just_made() -> None:
    row = catalogue.row_of(
        {
            "InstanceType": "p9.48xlarge",
            "BareMetal": False,
            "Hypervisor": "nitro",
            "VCpuInfo": {"DefaultVCpus": 256},
            "MemoryInfo": {"SizeInMiB": 4194304},
            "ProcessorInfo": {"SupportedArchitectures": ["arm64"]},
            "SupportedUsageClasses": ["capacity-block"],
            "NetworkInfo": {
                "NetworkPerformance": "12800 Gigabit",
                "MaximumNetworkCards": 16,
                "EfaSupported": True,
                "EfaInfo": {"MaximumEfaInterfaces": 16},
            },
            "GpuInfo": {
                "Gpus": [
                    {
                        "Manufacturer": "NVIDIA",
                        "Name": "R 100",
                        "Count": 8,
                        "MemoryInfo": {"SizeInMiB": 294912},
                    }
                ]
            },
        }
    )
    assert row == {
        "vcpus": 256,
        "memory_mib": 4194304,
        "network": "12800 Gigabit",
        "architectures": ["arm64"],
        "gpus": ["r-100", 8, 294912],
        "network_cards": 16,
        "efa": 16,
        "spot": False,
    }


def test_other_makers_gpus_and_local_zones_are_left_out() -> None:
    amd = {
        "BareMetal": True,
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 16384},
        "ProcessorInfo": {"SupportedArchitectures": ["i386", "x86_64"]},
        "SupportedUsageClasses": ["on-demand", "spot"],
        "NetworkInfo": {
            "NetworkPerformance": "Moderate",
            "NetworkCards": [{"PeakBandwidthInGbps": 1.2}],
        },
        "GpuInfo": {
            "Gpus": [{"Manufacturer": "AMD", "Name": "V520", "Count": 1, "MemoryInfo": {"SizeInMiB": 8192}}]
        },
        "InstanceStorageInfo": {"TotalSizeInGB": 150},
    }
    assert catalogue.row_of(amd) == {
        "vcpus": 4,
        "memory_mib": 16384,
        "network": "Moderate",
        "gbps": 1.2,
        "disk_gb": 150,
        "bare_metal": True,
    }
    offers = catalogue._by_type(
        {
            "us-west-2": [
                {"InstanceType": "g4dn.xlarge", "Location": zone}
                for zone in ("us-west-2b", "us-west-2-lax-1a", "us-west-2a", "us-west-2-wl1-las-wlz-1")
            ]
        }
    )
    assert offers == {"g4dn.xlarge": {"us-west-2": "ab"}}
