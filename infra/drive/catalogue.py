"""Generates and refreshes the tables of `infra.catalogue`.

``python -m infra.drive.catalogue`` generates them from the AWS data that moto ships (no account needed);
`refresh` queries AWS and merges the results into the current tables. Rows are sorted, one per line, without
common values, so that ``git diff`` shows which types were added, removed or changed.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.catalogue import gpus
from infra.catalogue.instances import bandwidth_gbps
from infra.catalogue.tables import FOLDER
from infra.errors import DriveError

Row = dict[str, Any]

_ZONE = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d+([a-z])")
"""An availability zone; Local and Wavelength Zones (``us-west-2-lax-1a``) do not match."""
_ARCHITECTURES: Final = ("x86_64", "arm64", "x86_64_mac", "arm64_mac")


@dataclass(frozen=True, slots=True)
class Tables:
    """The generated tables, as stored in ``infra/catalogue``."""

    instances: Mapping[str, Row]
    """Instance type → its row, see `infra.catalogue.instances`."""
    offers: Mapping[str, Mapping[str, str]]
    """Instance type → region → letters of the zones that offer it, ``abd``."""
    asked: frozenset[str]
    """Regions whose offers are known."""
    regions: Mapping[str, Row]
    """Region → ``{"partition", "location", "zones"}``."""


def from_moto() -> Tables:
    """The tables from moto's copies of AWS data."""
    import moto.ec2
    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

    folder = Path(moto.ec2.__file__).parent / "resources"
    described: Mapping[str, Row] = _unzipped(folder / "instance_types.json.gz")
    offers = {
        file.name.partition(".")[0]: _unzipped(file)
        for file in sorted((folder / "instance_type_offerings" / "availability-zone").iterdir())
    }
    zones = {region: [zone.name for zone in found] for region, found in RegionsAndZonesBackend.zones.items()}
    for region, found in offers.items():
        zones.setdefault(region, []).extend(offer["Location"] for offer in found)
    locations = _locations()
    return Tables(
        instances={name: row_of(type_) for name, type_ in described.items()},
        offers=_by_type(offers),
        asked=frozenset(offers),
        regions={
            region: _region(*locations.get(region, ("aws", region)), found) for region, found in zones.items()
        },
    )


def refresh(
    regions: Sequence[str],
    session: Any,
    *,
    folder: Path = FOLDER,
    said: Callable[[str], None] = print,
) -> None:
    """Query AWS in each region through a boto3 session and merge the results into the tables in ``folder``.

    Data of other regions is kept. Needs ``ec2:DescribeInstanceTypes``, ``DescribeInstanceTypeOfferings`` and
    ``DescribeAvailabilityZones``. ``said`` receives one line per region.

    Raises `DriveError` if AWS refuses; then nothing is written.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    merged = read(folder)
    for region in regions:
        try:
            answer = _ask(region, session)
        except (BotoCoreError, ClientError) as problem:
            raise DriveError(
                f"{region}: AWS did not answer: {problem}\n"
                "The catalogue is as it was. Check the credentials and that the region is enabled "
                "(invoke doctor)."
            ) from problem
        zones = answer.regions[region]["zones"]
        said(f"{region}: {len(answer.instances)} instance types in {len(zones)} zones")
        merged = merge(merged, answer)
    write(merged, folder)


def merge(present: Tables, newer: Tables) -> Tables:
    """``newer`` merged over ``present``: rows replace rows, and a region's offers replace all its earlier
    ones."""
    offers: dict[str, dict[str, str]] = {}
    for type_, found in present.offers.items():
        kept = {region: zones for region, zones in found.items() if region not in newer.asked}
        if kept:
            offers[type_] = kept
    for type_, found in newer.offers.items():
        offers.setdefault(type_, {}).update(found)
    rows = {**present.instances, **newer.instances}
    return Tables(
        # A type that no region offers any more is retired; it may still be in `retired.json`.
        instances={name: row for name, row in rows.items() if name in offers or name in newer.instances},
        offers=offers,
        asked=present.asked | newer.asked,
        regions={
            **present.regions,
            **{
                name: {**row, "location": present.regions[name]["location"]}
                if name in present.regions
                else row
                for name, row in newer.regions.items()
            },
        },
    )


def row_of(described: Row) -> Row:
    """A row of ``instances.json`` from one ``InstanceTypeInfo`` of EC2's API."""
    network = described["NetworkInfo"]
    said = str(network.get("NetworkPerformance", ""))
    network_cards = network.get("NetworkCards", ())
    row: Row = {
        "vcpus": described["VCpuInfo"]["DefaultVCpus"],
        "memory_mib": described["MemoryInfo"]["SizeInMiB"],
        "network": said,
    }
    if bandwidth_gbps(said) is None:
        row["gbps"] = sum(each.get("PeakBandwidthInGbps", 0.0) for each in network_cards)
    supported = described["ProcessorInfo"]["SupportedArchitectures"]
    architectures = [one for one in _ARCHITECTURES if one in supported]
    if architectures != ["x86_64"]:
        row["architectures"] = architectures
    if found := _gpus(described):
        row["gpus"] = found
    if network.get("MaximumNetworkCards", 1) > 1:
        row["network_cards"] = network["MaximumNetworkCards"]
    if network.get("EfaSupported"):
        row["efa"] = network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 1)
    if disks := described.get("InstanceStorageInfo"):
        row["disk_gb"] = disks["TotalSizeInGB"]
    if described["BareMetal"]:
        row["bare_metal"] = True
    if described.get("Hypervisor") == "xen":
        row["nitro"] = False
    if "spot" not in described["SupportedUsageClasses"]:
        row["spot"] = False
    return row


def read(folder: Path = FOLDER) -> Tables:
    """The tables in a folder."""
    offers = json.loads((folder / "offers.json").read_bytes())
    return Tables(
        instances=json.loads((folder / "instances.json").read_bytes()),
        offers={type_: dict(_unpacked(text)) for type_, text in offers["types"].items()},
        asked=frozenset(offers["regions"]),
        regions=json.loads((folder / "regions.json").read_bytes()),
    )


def write(tables: Tables, folder: Path = FOLDER) -> None:
    """Write the tables, each file atomically."""
    packed = {
        type_: " ".join(f"{region}:{zones}" for region, zones in sorted(found.items()))
        for type_, found in tables.offers.items()
    }
    regions = json.dumps(sorted(tables.asked), separators=(",", ":"))
    _replace(folder / "instances.json", _lines(tables.instances))
    _replace(folder / "offers.json", f'{{"regions":{regions},\n"types":{_lines(packed).rstrip()}}}\n')
    _replace(folder / "regions.json", _lines(tables.regions))


def _ask(region: str, session: Any) -> Tables:
    """The tables of one region, from AWS."""
    client = session.client("ec2", region_name=region)
    types = [
        type_
        for page in client.get_paginator("describe_instance_types").paginate()
        for type_ in page["InstanceTypes"]
    ]
    offers = [
        offer
        for page in client.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone"
        )
        for offer in page["InstanceTypeOfferings"]
    ]
    zones = [zone["ZoneName"] for zone in client.describe_availability_zones()["AvailabilityZones"]]
    partition, location = _locations().get(region, (client.meta.partition, region))
    return Tables(
        instances={type_["InstanceType"]: row_of(type_) for type_ in types},
        offers=_by_type({region: offers}),
        asked=frozenset({region}),
        regions={region: _region(partition, location, zones)},
    )


def _gpus(described: Row) -> list[Any] | None:
    """``[model, count, memory of one in MiB]`` and, for fractions of a GPU, the share."""
    for gpu in described.get("GpuInfo", {}).get("Gpus", ()):
        if gpu["Manufacturer"] != "NVIDIA":
            continue
        memory, share = gpu["MemoryInfo"]["SizeInMiB"], gpu.get("GpuPartitionSize", 1.0)
        found = [_model(gpu["Name"], memory), gpu["Count"] or gpu.get("LogicalGpuCount", 1), memory]
        return found if share == 1 else [*found, share]
    return None


def _model(name: str, memory_mib: int) -> str:
    """The GPU's slug. AWS uses one name for the A100 with 40 and with 80 GB; their memory distinguishes
    them."""
    model = gpus.find(f"{name}-{round(memory_mib / 1024)}gb") or gpus.find(name)
    return model.slug if model else re.sub(r"[^a-z0-9]+", "-", name.lower())


def _by_type(offers: Mapping[str, Iterable[Row]]) -> dict[str, dict[str, str]]:
    """Region → offers as EC2's API returns them, converted to instance type → region → letters of zones."""
    found: dict[str, dict[str, set[str]]] = {}
    for region, each in offers.items():
        for offer in each:
            zone = _ZONE.fullmatch(offer["Location"])
            if zone:
                found.setdefault(offer["InstanceType"], {}).setdefault(region, set()).add(zone[1])
    return {
        type_: {region: "".join(sorted(letters)) for region, letters in regions.items()}
        for type_, regions in found.items()
    }


def _region(partition: str, location: str, zones: Iterable[str]) -> Row:
    letters = {found[1] for zone in zones if (found := _ZONE.fullmatch(zone))}
    return {"partition": partition, "location": location, "zones": "".join(sorted(letters))}


def _locations() -> dict[str, tuple[str, str]]:
    """Region → partition and location, from botocore's endpoint table."""
    import botocore.loaders

    loader: Any = botocore.loaders.Loader
    endpoints = loader().load_data("endpoints")
    return {
        region: (partition["partition"], row["description"])
        for partition in endpoints["partitions"]
        for region, row in partition["regions"].items()
    }


def _unpacked(text: str) -> Iterator[tuple[str, str]]:
    for one in text.split():
        region, _, zones = one.rpartition(":")
        yield region, zones


def _unzipped(file: Path) -> Any:
    return json.loads(gzip.decompress(file.read_bytes()))


def _lines(rows: Mapping[str, Any]) -> str:
    """A sorted JSON object with one row per line."""
    lines = (
        f"{json.dumps(name)}:{json.dumps(row, separators=(',', ':'), ensure_ascii=False)}"
        for name, row in sorted(rows.items())
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


if __name__ == "__main__":
    write(from_moto())
