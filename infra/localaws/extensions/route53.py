"""Route 53."""

from __future__ import annotations

from typing import Any, Final

from moto.core.responses import ActionResult
from moto.route53.exceptions import ResourceRecordAlreadyExists
from moto.route53.models import ChangeList, FakeZone, Route53Backend
from moto.route53.responses import Route53

from infra.localaws.patching import around, method

_CALLS: Final = (
    "create_hosted_zone",
    "delete_hosted_zone",
    "associate_vpc_with_hosted_zone",
    "disassociate_vpc_from_hosted_zone",
    "change_resource_record_sets",
)


def dns_changes() -> None:
    """ChangeResourceRecordSets: which records can be created, and no wait until a change is in sync.

    moto refuses a record if the same request was made before and any record of the zone has a later name, so
    a deleted record cannot be created again; and it creates a second record of one name and type if only the
    values differ. Here only the records in the zone count.

    AWS returns the id of a change, whose status GetChange returns. Terraform's provider sleeps 10 to 30
    seconds before the first poll, for each record and zone; it does not if there is no id.

    https://docs.aws.amazon.com/Route53/latest/APIReference/API_ChangeResourceRecordSets.html
    https://docs.aws.amazon.com/Route53/latest/APIReference/API_ChangeInfo.html
    """

    for call in _CALLS:

        def unnamed(original: Any, self: Any) -> ActionResult:
            answer: Any = original(self)
            return ActionResult({key: value for key, value in answer.result.items() if key != "ChangeInfo"})

        unnamed.__name__ = call
        around(Route53)(unnamed)

    @method(ChangeList)
    def __contains__(*_: Any) -> bool:  # noqa: N807
        return False  # earlier requests say nothing about the records that exist

    @around(Route53Backend)
    def change_resource_record_sets(original: Any, self: Any, zoneid: str, change_list: list[Any]) -> None:
        there = {_identity(vars(each)) for each in self.get_hosted_zone(zoneid).rrsets}
        for change in change_list:
            record = change["ResourceRecordSet"]
            asked = _identity(
                {
                    "name": record["Name"],
                    "type": record["Type"],
                    "set_identifier": record.get("SetIdentifier"),
                }
            )
            if change["Action"] == "CREATE" and asked in there:
                raise ResourceRecordAlreadyExists(name=_plain(record["Name"]), _type=record["Type"])
            (there.discard if change["Action"] == "DELETE" else there.add)(asked)
        original(self, zoneid, change_list)

    @around(FakeZone)
    def delete_rrset(original: Any, self: Any, rrset: dict[str, Any]) -> None:
        wanted = _plain(rrset["Name"])
        for name in {each.name for each in self.rrsets if _plain(each.name) == wanted}:
            original(self, {**rrset, "Name": name})


def _identity(record: dict[str, Any]) -> tuple[str, str, str]:
    return _plain(record["name"]), record["type"], record["set_identifier"] or ""


def _plain(name: str) -> str:
    """A name in canonical form: lower case, with its final dot, and with a literal asterisk (Route 53
    Developer Guide, "DNS domain name format")."""
    return name.lower().rstrip(".").replace(r"\052", "*") + "."


def hosted_zone_vpcs() -> None:
    """CreateHostedZone creates a private zone if a VPC is given; GetHostedZone returns its VPCs.

    moto stores them under other names, which its serializer does not find in the API's shape
    (https://docs.aws.amazon.com/Route53/latest/APIReference/API_VPC.html).
    """

    @around(Route53)
    def create_hosted_zone(original: Any, self: Any) -> ActionResult:
        flag = self._get_bool_param

        def private(name: str, otherwise: Any = None) -> Any:
            named = name == "HostedZoneConfig.PrivateZone" and self._get_param("VPC.VPCId")
            return True if named else flag(name, otherwise)

        self._get_bool_param = private
        answer: ActionResult = original(self)
        return answer

    @around(Route53)
    def get_hosted_zone(original: Any, self: Any) -> ActionResult:
        answer: Any = original(self)
        vpcs = answer.result["VPCs"]
        if vpcs is not None:
            answer.result["VPCs"] = [
                {"VPCId": vpc.get("vpc_id"), "VPCRegion": vpc.get("vpc_region")} for vpc in vpcs
            ]
        return ActionResult(answer.result)
