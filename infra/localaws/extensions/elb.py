"""CreateLoadBalancer returns an active load balancer; in moto it becomes active at the first Describe.

The ARN of a network load balancer contains ``net``, which IAM policies use; moto's contains ``app``.

https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_LoadBalancerState.html
https://docs.aws.amazon.com/service-authorization/latest/reference/list_awselasticloadbalancingv2.html
"""

from __future__ import annotations

from typing import Any, Final

from moto.elbv2.models import ELBv2Backend, FakeLoadBalancer

from infra.localaws.patching import around

_KINDS: Final = {"network": "net", "gateway": "gwy"}


def load_balancers() -> None:
    @around(FakeLoadBalancer)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        self.activate()

    @around(ELBv2Backend)
    def create_load_balancer(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        balancer = original(self, *args, **kwargs)
        kind = _KINDS.get(balancer.type)
        if kind is not None:
            tags = self.tagging_service.list_tags_for_resource(balancer.arn)["Tags"]
            self.tagging_service.delete_all_tags_for_resource(balancer.arn)
            del self.load_balancers[balancer.arn]
            balancer.arn = balancer.arn.replace("/app/", f"/{kind}/")
            self.load_balancers[balancer.arn] = balancer
            self.tagging_service.tag_resource(balancer.arn, tags)
        return balancer
