"""ChangeResourceRecordSets and its like name no change to follow: everything is in sync at once.

AWS names a change, of which GetChange tells when it is in sync. Terraform's provider sleeps 10 to 30 seconds
before it first asks, for each record and zone; where no change is named it goes on.

https://docs.aws.amazon.com/Route53/latest/APIReference/API_ChangeInfo.html
"""

from __future__ import annotations

from typing import Any, Final

from moto.core.responses import ActionResult
from moto.route53.responses import Route53

from infra.localaws.patching import around

_CALLS: Final = (
    "create_hosted_zone",
    "delete_hosted_zone",
    "associate_vpc_with_hosted_zone",
    "disassociate_vpc_from_hosted_zone",
    "change_resource_record_sets",
)


def install() -> None:
    for call in _CALLS:

        def unnamed(original: Any, self: Any) -> ActionResult:
            answer: Any = original(self)
            return ActionResult({key: value for key, value in answer.result.items() if key != "ChangeInfo"})

        unnamed.__name__ = call
        around(Route53)(unnamed)
