"""CreateLoadBalancer answers a balancer that is active at once; in moto the first look sets it going.

https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_LoadBalancerState.html
"""

from __future__ import annotations

from typing import Any

from moto.elbv2.models import FakeLoadBalancer

from infra.localaws.patching import around


def install() -> None:
    @around(FakeLoadBalancer)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        self.activate()
