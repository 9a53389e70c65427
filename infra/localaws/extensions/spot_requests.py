"""DescribeSpotInstanceRequests by status code, with the time of the status, as interruption notices need it.

moto knows neither the filter nor the time. A test marks a request by its attributes ``_status_code`` and
``updated``.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeSpotInstanceRequests.html
"""

from __future__ import annotations

from typing import Any

from moto.ec2.models.spot_requests import SpotInstanceRequest

from infra.localaws.patching import around


def install() -> None:
    @around(SpotInstanceRequest)
    def get_filter_value(original: Any, self: Any, filter_name: str, method_name: str | None = None) -> Any:
        return self._status_code if filter_name == "status-code" else original(self, filter_name, method_name)

    moto: Any = SpotInstanceRequest
    theirs = moto.status.fget

    def status(self: Any) -> dict[str, Any]:
        row: dict[str, Any] = theirs(self)
        return row | {"UpdateTime": getattr(self, "updated", row["UpdateTime"])}

    setattr(SpotInstanceRequest, "status", property(status))  # noqa: B010, mypy
