"""Undeclared settings of our buckets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.drive.aws import Aws
from infra.drive.undeclared.model import Declared, Undeclared, on


@dataclass(frozen=True, slots=True)
class _Setting:
    name: str
    get: str
    says: tuple[str, ...]
    """Keys of the response that are present if the setting is configured."""
    none: str
    """The error code if it is not configured; empty if the response then lacks these keys."""
    remove: str
    parameters: Mapping[str, Any]
    default: str = ""
    """A value that is equivalent to no configuration."""


_SETTINGS = (
    _Setting("CORS", "get_bucket_cors", ("CORSRules",), "NoSuchCORSConfiguration", "delete_bucket_cors", {}),
    _Setting(
        "website", "get_bucket_website", ("IndexDocument", "RedirectAllRequestsTo"),
        "NoSuchWebsiteConfiguration", "delete_bucket_website", {},
    ),
    _Setting(
        "replication", "get_bucket_replication", ("ReplicationConfiguration",),
        "ReplicationConfigurationNotFoundError", "delete_bucket_replication", {},
    ),
    _Setting(
        "access log", "get_bucket_logging", ("LoggingEnabled",), "",
        "put_bucket_logging", {"BucketLoggingStatus": {}},
    ),
    _Setting(
        "notification", "get_bucket_notification_configuration",
        (
            "TopicConfigurations", "QueueConfigurations", "LambdaFunctionConfigurations",
            "EventBridgeConfiguration",
        ),
        "", "put_bucket_notification_configuration", {"NotificationConfiguration": {}},
    ),
    _Setting(
        "acceleration", "get_bucket_accelerate_configuration", ("Status",), "",
        "put_bucket_accelerate_configuration", {"AccelerateConfiguration": {"Status": "Suspended"}},
        "Suspended",
    ),
    _Setting(
        "payer", "get_bucket_request_payment", ("Payer",), "",
        "put_bucket_request_payment", {"RequestPaymentConfiguration": {"Payer": "BucketOwner"}},
        "BucketOwner",
    ),
)  # fmt: skip


def settings(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Bucket settings that Terraform has a resource type for and our modules do not set."""
    s3 = aws.client("s3", region)
    for bucket, holder in declared.by("bucket", "aws_s3_bucket", region).items():
        for setting in _SETTINGS:
            try:
                answer = getattr(s3, setting.get)(Bucket=bucket)
            except s3.exceptions.ClientError as problem:
                if problem.response["Error"]["Code"] == setting.none:
                    continue
                if problem.response["Error"]["Code"] == "NoSuchBucket":
                    break
                raise
            said = {key: answer[key] for key in setting.says if answer.get(key) is not None}
            if said and setting.default not in said.values():
                yield on(
                    holder, "bucket setting", setting.name, f"{setting.name}: {_shown(said)}",
                    "s3", setting.remove, Bucket=bucket, **setting.parameters,
                )  # fmt: skip


def inventories(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Inventories of our buckets: lists of all objects, written to some bucket every day or week."""
    s3 = aws.client("s3", region)
    for bucket, holder in declared.by("bucket", "aws_s3_bucket", region).items():
        asked = {"Bucket": bucket}
        while asked:
            try:
                answer = s3.list_bucket_inventory_configurations(**asked)
            except s3.exceptions.ClientError as problem:
                if problem.response["Error"]["Code"] == "NoSuchBucket":
                    break
                raise
            for each in answer.get("InventoryConfigurationList", ()):
                target = each["Destination"]["S3BucketDestination"]["Bucket"]
                yield on(
                    holder, "bucket inventory", each["Id"], f"{each['Id']} to {target}",
                    "s3", "delete_bucket_inventory_configuration", Bucket=bucket, Id=each["Id"],
                )  # fmt: skip
            more = answer.get("NextContinuationToken") if answer.get("IsTruncated") else None
            asked = {"Bucket": bucket, "ContinuationToken": more} if more else {}


def _shown(said: Mapping[str, Any]) -> str:
    import json

    return json.dumps(said, default=str) if len(said) > 1 else json.dumps(*said.values(), default=str)
