"""Undeclared readers of our log groups."""

from __future__ import annotations

from collections.abc import Iterator

from infra.drive.aws import Aws
from infra.drive.undeclared.model import Declared, Undeclared, on, pages


def filters(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Metric filters and subscription filters of our log groups."""
    logs = aws.client("logs", region)
    for group, holder in declared.by("name", "aws_cloudwatch_log_group", region).items():
        try:
            metrics = [
                each
                for page in pages(logs, "describe_metric_filters", logGroupName=group)
                for each in page["metricFilters"]
            ]
            subscriptions = [
                each
                for page in pages(logs, "describe_subscription_filters", logGroupName=group)
                for each in page["subscriptionFilters"]
            ]
        except logs.exceptions.ResourceNotFoundException:
            continue  # the group was deleted, which Terraform's plan reports
        for each in metrics:
            name = each["filterName"]
            made = ", ".join(
                f"{one['metricNamespace']}/{one['metricName']}" for one in each["metricTransformations"]
            )
            yield on(
                holder, "metric filter", name, f"{name}: {made}",
                "logs", "delete_metric_filter", logGroupName=group, filterName=name,
            )  # fmt: skip
        for each in subscriptions:
            name = each["filterName"]
            yield on(
                holder, "subscription filter", name, f"{name} to {each['destinationArn']}",
                "logs", "delete_subscription_filter", logGroupName=group, filterName=name,
            )  # fmt: skip
