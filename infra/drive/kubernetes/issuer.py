"""Publishes the keys that verify service account tokens, at the URLs of their issuers.

The API server serves both documents (Kubernetes, "Service account issuer discovery"), but AWS cannot reach
it, so copies are stored in a bucket, a pair per issuer. They contain public keys only.
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
"""Seconds for which clients may cache a copy."""
_EDGE_AGE: Final = 60
"""Seconds for which CloudFront caches a copy."""
_CACHES: Final[Mapping[Server, tuple[str, int]]] = {
    "s3": (f"max-age={_AGE}", _AGE),
    # A client that gets a copy at the end of the edge's cache time, and ignores its age, caches it for as
    # long again.
    "cloudfront": (f"max-age={_AGE}, s-maxage={_EDGE_AGE}", _AGE + _EDGE_AGE),
}
"""Server of a document → its Cache-Control, and the seconds after which no older copy is cached."""


def signs_as(api: Api) -> str:
    """The issuer of tokens that the API server signs."""
    return str(api.get(f"/{_DISCOVERY}").get("issuer"))


def seconds_to_wait(s3: Any, identity: WebIdentity, now: datetime) -> float:
    """Seconds until no client has an older copy of the published keys."""
    seconds = 0.0
    for issuer in identity.issuers:
        key, (_, age) = f"{issuer.folder}{_KEYS}", _CACHES[issuer.served_by]
        with aws_errors(f"look at {key} in s3://{identity.bucket}"):
            written: datetime = s3.head_object(Bucket=identity.bucket, Key=key)["LastModified"]
        seconds = max(seconds, age - (now - written).total_seconds())
    return seconds


def publish(api: Api, s3: Any, identity: WebIdentity, outputs: Outputs) -> str:
    """Update the bucket; returns what was done. Raises ``DriveError`` for errors of AWS or the API.

    An issuer's documents may be published before an API server uses it, as there are no tokens of it yet.
    """
    discovery = api.get(f"/{_DISCOVERY}")
    # As text, because the endpoint only serves application/jwk-set+json.
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
    """Issuers whose tokens AWS STS cannot verify, by URL, and why; the documents are fetched over HTTPS.

    Documents on AWS's own servers are skipped if ``s3`` uses a custom endpoint.
    """
    keys = {each["kid"] for each in json.loads(api.text(f"/{_KEYS}"))["keys"]}
    at_aws = _is_at_aws(s3.meta.endpoint_url)
    urls = [url for issuer in identity.issuers if (url := outputs.issuer(issuer)) is not None]
    found = {url: _fault(url, keys) for url in urls if at_aws or not _is_at_aws(url)}
    return {url: fault for url, fault in found.items() if fault}


def _is_at_aws(url: str) -> bool:
    return str(urlsplit(url).hostname).endswith((".amazonaws.com", ".amazonaws.com.cn", ".cloudfront.net"))


def _fault(url: str, keys: Collection[str]) -> str:
    """What is wrong with an issuer's documents; empty if they can be read and contain these keys."""
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
    """Write a document if it has changed; returns whether it was written."""
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
