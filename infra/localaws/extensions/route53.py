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
    """Changes of DNS records: what is created, and what is in the way; and everything is in sync at once.

    moto takes a record for one that exists if a request like this one was made before and any record of the
    zone has a later name, so that one that was deleted can't be created again; and it creates a second record
    of one name and type if only the values differ. Here what is in the zone counts.

    AWS names a change, of which GetChange tells when it is in sync. Terraform's provider sleeps 10 to 30
    seconds before it first asks, for each record and zone; where no change is named it goes on.

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
        return False  # what was once asked for says nothing of what there is

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
    """A name in one spelling: lower case, with its last dot, and an asterisk as itself (Route 53 Developer
    Guide, "DNS domain name format")."""
    return name.lower().rstrip(".").replace(r"\052", "*") + "."


def hosted_zone_vpcs() -> None:
    """CreateHostedZone makes a private zone where a VPC is named; GetHostedZone answers its VPCs.

    moto keeps them under names of its own, which its serializer does not find in the API's shape
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
