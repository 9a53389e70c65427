"""S3."""

from __future__ import annotations

import json
from typing import Any

from moto.s3.exceptions import MissingInventoryConfig
from moto.s3.models import FakeBucket
from moto.s3.responses import S3Response

from infra.localaws.patching import around


def bucket_policies() -> None:
    """PutBucketPolicy with a condition on TLS: moto ignores conditions of denials, and denies everything.

    Loopback has no TLS, and only this computer can connect: calls to the embedded AWS count as secure.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/security-best-practices.html
    """

    @around(FakeBucket)
    def get_permission(original: Any, self: Any, action: str, resource: str) -> Any:
        if self.policy is None:
            return original(self, action, resource)
        whole = self.policy
        policy = json.loads(whole)
        policy["Statement"] = [one for one in policy["Statement"] if not _for_plain_text(one)]
        try:
            self.policy = json.dumps(policy).encode() if policy["Statement"] else None
            return original(self, action, resource)
        finally:
            self.policy = whole


def _for_plain_text(statement: dict[str, Any]) -> bool:
    """Whether a statement applies only to calls without TLS."""
    condition = statement.get("Condition", {}).get("Bool", {})
    return str(condition.get("aws:SecureTransport", "")).lower() == "false"


def bucket_inventories() -> None:
    """DeleteBucketInventoryConfiguration: moto lacks the call, and deletes the bucket instead.

    https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteBucketInventoryConfiguration.html
    """

    @around(S3Response)
    def _bucket_response_delete(
        original: Any, self: Any, bucket_name: str, querystring: dict[str, Any]
    ) -> Any:
        if "inventory" not in querystring:
            return original(self, bucket_name, querystring)
        configurations = self.backend.get_bucket(bucket_name).inventory_configs
        if configurations.pop(querystring["id"][0], None) is None:
            raise MissingInventoryConfig
        return 204, {}, ""
