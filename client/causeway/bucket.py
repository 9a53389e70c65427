"""Calls to the store's bucket that the client and pods share."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any


def has_object(s3: Any, bucket: str, key: str) -> bool:
    """Whether a bucket contains an object, for a role that may list one folder only.

    HeadObject cannot be used: for a missing object it returns 403 unless the role may list the bucket without
    a prefix (Amazon S3 API Reference, "HeadObject").
    """
    return _written(s3, bucket, key) is not None


def renew_object(s3: Any, bucket: str, key: str, keep_days: int) -> bool:
    """Whether a bucket contains an object. An object older than a third of ``keep_days`` is copied onto
    itself.

    S3 counts the days of a lifecycle rule from when an object was written, and a copy counts as a write
    (Amazon S3 User Guide, "Copying, moving, and renaming objects"; a copy onto itself has to replace
    something).
    """
    written = _written(s3, bucket, key)
    if written is None:
        return False
    if datetime.now(timezone.utc) - written >= timedelta(days=keep_days) / 3:
        source = {"Bucket": bucket, "Key": key}
        s3.copy_object(Bucket=bucket, Key=key, CopySource=source, MetadataDirective="REPLACE")
    return True


def _written(s3: Any, bucket: str, key: str) -> datetime | None:
    found = s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
    times: list[datetime] = [each["LastModified"] for each in found.get("Contents", ()) if each["Key"] == key]
    return times[0] if times else None
