"""Listeners of our load balancers, and targets of our target groups."""

from __future__ import annotations

from collections.abc import Iterator

from infra.drive.aws import Aws
from infra.drive.undeclared.model import Declared, Undeclared, on, pages


def listeners(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Ports that the load balancer answers on."""
    elb = aws.client("elbv2", region)
    ours = declared.values("aws_lb_listener", "arn")
    for balancer, holder in declared.by("arn", "aws_lb", region).items():
        try:
            answer = list(pages(elb, "describe_listeners", LoadBalancerArn=balancer))
        except elb.exceptions.LoadBalancerNotFoundException:
            continue  # Terraform says so itself
        for listener in (each for page in answer for each in page["Listeners"]):
            arn = listener["ListenerArn"]
            if (arn,) not in ours:
                which = f"{listener.get('Protocol', '')} {listener.get('Port', '')} ({arn})"
                yield on(holder, "listener", arn, which, "elbv2", "delete_listener", ListenerArn=arn)


def targets(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Where the load balancer sends what it gets."""
    elb = aws.client("elbv2", region)
    ours = declared.values("aws_lb_target_group_attachment", "target_group_arn", "target_id", "port")
    for group, holder in declared.by("arn", "aws_lb_target_group", region).items():
        try:
            answer = elb.describe_target_health(TargetGroupArn=group)
        except elb.exceptions.TargetGroupNotFoundException:
            continue
        for health in answer["TargetHealthDescriptions"]:
            target = {key: health["Target"][key] for key in ("Id", "Port") if key in health["Target"]}
            leaving = health.get("TargetHealth", {}).get("State") == "draining"
            if (group, target["Id"], target.get("Port")) not in ours and not leaving:
                name = f"{target['Id']}:{target.get('Port', '')}"
                yield on(
                    holder, "target", name, name,
                    "elbv2", "deregister_targets", TargetGroupArn=group, Targets=[target],
                )  # fmt: skip
