"""What the client and pods ask the store's bucket alike."""

from __future__ import annotations

from typing import Any


def has_object(s3: Any, bucket: str, key: str) -> bool:
    """Whether a bucket has an object, for a role that may list one folder only.

    Not by HeadObject: for an object that does not exist it returns 403 unless the role may list the bucket
    without a prefix (Amazon S3 API Reference, "HeadObject").
    """
    found = s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
    return any(each["Key"] == key for each in found.get("Contents", ()))
