"""Publishes the keys that tokens of service accounts are verified with, where their issuer says they are.

The API server serves both documents itself (Kubernetes, "Service account issuer discovery"); AWS can't reach
it, so copies of them lie in a public bucket. They hold public keys alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from infra.drive.aws import told
from infra.drive.kubernetes.api import Api
from infra.model.web_identity import Issuer

_DISCOVERY: Final = ".well-known/openid-configuration"
_KEYS: Final = "openid/v1/jwks"
_AGE: Final = 300
"""Seconds for which a reader may keep a copy."""


def publish(api: Api, s3: Any, issuer: Issuer) -> str:
    """Bring the bucket up to date; says what was done. ``DriveError`` for what AWS or the API refuses.

    Nothing is published where the API server signs as another issuer: AWS would take none of its tokens.
    """
    documents = {path: api.get(f"/{path}") for path in (_DISCOVERY, _KEYS)}
    own = documents[_DISCOVERY].get("issuer")
    if own != issuer.url:
        return (
            f"not yet: the API server signs as {own}, so nobody gets rights at AWS; give the masters the "
            "issuer (docs/cluster.md, Masters that are older than `research`)"
        )
    changed = [path for path, document in documents.items() if _put(s3, issuer.bucket, path, document)]
    return f"{len(changed)} of {len(documents)} documents written" if changed else "as they were"


def _put(s3: Any, bucket: str, path: str, document: Mapping[str, Any]) -> bool:
    """Write a document unless it is there already; whether it was written."""
    text = json.dumps(document, sort_keys=True).encode()
    with told(f"publish {path} in s3://{bucket}"):
        if _there(s3, bucket, path) == text:
            return False
        s3.put_object(
            Bucket=bucket,
            Key=path,
            Body=text,
            ContentType="application/json",
            CacheControl=f"max-age={_AGE}",
        )
    return True


def _there(s3: Any, bucket: str, path: str) -> bytes | None:
    try:
        text: bytes = s3.get_object(Bucket=bucket, Key=path)["Body"].read()
    except s3.exceptions.NoSuchKey:
        return None
    return text
