"""ChangeResourceRecordSets and its like answer no change to follow: every change is in sync at once.

AWS names a change that one may ask for with GetChange. Terraform's provider sleeps 10 to 30 seconds before it
asks, for each record; where no change is named it does not wait.

https://docs.aws.amazon.com/Route53/latest/APIReference/API_ChangeInfo.html
"""

from __future__ import annotations

from typing import Any

from moto.route53.responses import Route53

from infra.localaws.patching import around


def install() -> None:
    @around(Route53)
    def call_action(original: Any, self: Any) -> Any:
        return original(self)
