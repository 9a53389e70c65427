"""DeleteBucketInventoryConfiguration: moto has no such call, and deletes the bucket.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteBucketInventoryConfiguration.html
"""

from __future__ import annotations

from typing import Any

from moto.s3.exceptions import MissingInventoryConfig
from moto.s3.responses import S3Response

from infra.localaws.patching import around


def install() -> None:
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
