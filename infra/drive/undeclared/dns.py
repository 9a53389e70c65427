"""Undeclared records in our hosted zones, and VPCs that a private zone is associated with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from infra.drive.aws import Aws
from infra.drive.undeclared.model import Declared, Undeclared, on, pages

_ESCAPED = re.compile(r"\\(\d{3})")


def records(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Records of our zones. In a zone that existed before, records of others are ignored."""
    route53 = aws.client("route53")
    rows = declared.values("aws_route53_record", "zone_id", "fqdn", "name", "type", "set_identifier")
    for zone, holder in declared.by("zone_id", "aws_route53_zone", region).items():
        try:
            answer = list(pages(route53, "list_resource_record_sets", HostedZoneId=zone))
        except route53.exceptions.NoSuchHostedZone:
            continue
        apex = _plain(holder.values["name"])
        ours = {
            (_plain(fqdn) if fqdn else _within(_plain(name), apex), kind, identifier or "")
            for of, fqdn, name, kind, identifier in rows
            if of == zone
        }
        for record in (each for page in answer for each in page["ResourceRecordSets"]):
            name, kind = _plain(record["Name"]), record["Type"]
            if kind in ("NS", "SOA") and name == apex:
                continue
            if (name, kind, record.get("SetIdentifier", "")) not in ours:
                change = {"Action": "DELETE", "ResourceRecordSet": record}
                yield on(
                    holder, "record", f"{name} {kind}", f"{name} {kind} {_value(record)}",
                    "route53", "change_resource_record_sets",
                    HostedZoneId=zone, ChangeBatch={"Changes": [change]},
                )  # fmt: skip


def zone_vpcs(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """VPCs in which a private zone is resolved."""
    route53 = aws.client("route53")
    ours = declared.values("aws_vpc", "id")
    for zone, holder in declared.by("zone_id", "aws_route53_zone", region).items():
        try:
            answer = route53.get_hosted_zone(Id=zone)
        except route53.exceptions.NoSuchHostedZone:
            continue
        for vpc in answer.get("VPCs", ()):
            if (vpc["VPCId"],) not in ours:
                yield on(
                    holder, "zone association", vpc["VPCId"], f"{vpc['VPCId']} in {vpc['VPCRegion']}",
                    "route53", "disassociate_vpc_from_hosted_zone",
                    HostedZoneId=zone, VPC={"VPCRegion": vpc["VPCRegion"], "VPCId": vpc["VPCId"]},
                )  # fmt: skip


def _plain(name: str) -> str:
    """A name without Route 53's octal escapes and its final dot."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), name).rstrip(".").lower()


def _within(name: str, apex: str) -> str:
    """The full name of a record that Terraform has created but not yet read: ``fqdn`` is then unknown."""
    return name if name == apex or name.endswith(f".{apex}") else f"{name}.{apex}".lstrip(".")


def _value(record: dict[str, Any]) -> str:
    alias = record.get("AliasTarget")
    return str(alias["DNSName"]) if alias else " ".join(one["Value"] for one in record["ResourceRecords"])
