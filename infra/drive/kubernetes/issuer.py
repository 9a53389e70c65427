"""Publishes the keys that tokens of service accounts are verified with, where their issuers say they are.

The API server serves both documents itself (Kubernetes, "Service account issuer discovery"); AWS can't reach
it, so copies of them are in a bucket, for each issuer one of both. They hold public keys alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from infra.drive.aws import aws_errors
from infra.drive.kubernetes.api import Api
from infra.model import Outputs
from infra.model.kubernetes import Server, WebIdentity

_DISCOVERY: Final = ".well-known/openid-configuration"
_KEYS: Final = "openid/v1/jwks"
_SECONDS: Final = 10
_AGE: Final = 300
"""Seconds for which a reader may keep a copy."""
_EDGE_AGE: Final = 60
"""Seconds for which CloudFront serves a copy of its own."""
_CACHES: Final[Mapping[Server, tuple[str, int]]] = {
    "s3": (f"max-age={_AGE}", _AGE),
    # A reader that gets the edge's copy at its last moment, and ignores its age, keeps it for as long again.
    "cloudfront": (f"max-age={_AGE}, s-maxage={_EDGE_AGE}", _AGE + _EDGE_AGE),
}
"""By who serves a document: its Cache-Control, and the seconds until nobody has an older one."""


def signs_as(api: Api) -> str:
    """The issuer that the API server's tokens name."""
    return str(api.get(f"/{_DISCOVERY}").get("issuer"))


def seconds_to_wait(s3: Any, identity: WebIdentity, now: datetime) -> float:
    """Until each reader has the keys that are published now, and no older copy."""
    seconds = 0.0
    for issuer in identity.issuers:
        key, (_, age) = f"{issuer.folder}{_KEYS}", _CACHES[issuer.served_by]
        with aws_errors(f"look at {key} in s3://{identity.bucket}"):
            written: datetime = s3.head_object(Bucket=identity.bucket, Key=key)["LastModified"]
        seconds = max(seconds, age - (now - written).total_seconds())
    return seconds


def publish(api: Api, s3: Any, identity: WebIdentity, outputs: Outputs) -> str:
    """Bring the bucket up to date; says what was done. ``DriveError`` for what AWS or the API refuses.

    An issuer's documents may be there before an API server signs as it: they say whose tokens these keys
    verify, and nobody has one yet.
    """
    discovery = api.get(f"/{_DISCOVERY}")
    # Of the type application/jwk-set+json, and of no other.
    keys = json.loads(api.text(f"/{_KEYS}"))
    urls = {issuer: url for issuer in identity.issuers if (url := outputs.issuer(issuer)) is not None}
    written = 0
    for issuer, url in urls.items():
        own = {**discovery, "issuer": url, "jwks_uri": f"{url}/{_KEYS}"}
        for path, document in ((_DISCOVERY, own), (_KEYS, keys)):
            written += _put(s3, identity.bucket, issuer.folder + path, document, _CACHES[issuer.served_by][0])
    done = f"{written} of {2 * len(urls)} documents written" if written else "as they were"
    signer = discovery.get("issuer")
    if signer not in urls.values():
        return f"{done}; AWS takes no tokens of {signer}, as which masters sign: invoke cluster.change-issuer"
    return done


def unreadable(api: Api, s3: Any, identity: WebIdentity, outputs: Outputs) -> Mapping[str, str]:
    """Issuers that AWS's STS can't verify tokens of, by URL, and why: what it reads is read over HTTPS.

    Documents of AWS's own servers are left out where ``s3`` asks an endpoint in AWS's place.
    """
    keys = {each["kid"] for each in json.loads(api.text(f"/{_KEYS}"))["keys"]}
    at_aws = _is_at_aws(s3.meta.endpoint_url)
    urls = [url for issuer in identity.issuers if (url := outputs.issuer(issuer)) is not None]
    found = {url: _fault(url, keys) for url in urls if at_aws or not _is_at_aws(url)}
    return {url: fault for url, fault in found.items() if fault}


def _is_at_aws(url: str) -> bool:
    return str(urlsplit(url).hostname).endswith((".amazonaws.com", ".amazonaws.com.cn", ".cloudfront.net"))


def _fault(url: str, keys: Collection[str]) -> str:
    """What is wrong with an issuer's documents; empty if they are readable and have these keys."""
    try:
        if (named := _read(f"{url}/{_DISCOVERY}").get("issuer")) != url:
            return f"{url}/{_DISCOVERY} is of the issuer {named}"
        there = {each.get("kid") for each in _read(f"{url}/{_KEYS}")["keys"]}
    except HTTPError as error:
        return f"{error.url}: HTTP {error.code}"
    except OSError as error:
        return f"{url}: {getattr(error, 'reason', error)}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{url}: its documents can't be read as an issuer's"
    return "" if there >= {*keys} else f"{url}/{_KEYS} lacks a key of the API servers"


def _read(url: str) -> Any:
    with urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 - https, as issuers' URLs are
        return json.load(answer)


def _put(s3: Any, bucket: str, path: str, document: Mapping[str, Any], cache: str) -> bool:
    """Write a document unless it is there already; whether it was written."""
    text = json.dumps(document, sort_keys=True).encode()
    with aws_errors(f"publish {path} in s3://{bucket}"):
        if _there(s3, bucket, path) == text:
            return False
        s3.put_object(Bucket=bucket, Key=path, Body=text, ContentType="application/json", CacheControl=cache)
    return True


def _there(s3: Any, bucket: str, path: str) -> bytes | None:
    try:
        text: bytes = s3.get_object(Bucket=bucket, Key=path)["Body"].read()
    except s3.exceptions.NoSuchKey:
        return None
    return text
