"""AssumeRoleWithWebIdentity verifies the token, as AWS does: moto gives any caller any role.

The issuer must be an identity provider of the account; its discovery document and keys are read from this
process's S3: from the bucket in its URL, or through the distribution with its domain. The signature, the
time, the audience and the conditions of the role's trust policy are checked.

https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from moto.cloudfront.models import cloudfront_backends
from moto.core.exceptions import ServiceException
from moto.iam.models import iam_backends
from moto.s3.models import s3_backends
from moto.sts.responses import TokenResponse

from infra.localaws.patching import around

_BUCKET_URL: Final = re.compile(r"https://([a-z0-9.-]+)\.s3\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?")
_NO_KEY: Final = "Couldn't retrieve verification key from your identity provider"
_SKEW: Final = 300
"""Tolerated clock skew in seconds."""


class _RefusedError(ServiceException):
    pass


def _invalid(why: str) -> _RefusedError:
    return _RefusedError("InvalidIdentityToken", why)


def web_identity() -> None:
    @around(TokenResponse)
    def assume_role_with_web_identity(original: Any, self: Any) -> Any:
        account, partition = self.current_account, self.partition
        claims = _claims(self._get_param("WebIdentityToken") or "", account, partition)
        _trusted(iam_backends[account][partition], self._get_param("RoleArn"), claims)
        return original(self)


def _claims(token: str, account: str, partition: str) -> Mapping[str, Any]:
    """The claims of a token whose issuer, audience and time are verified."""
    try:
        head, body, signature = token.split(".")
        header, claims = json.loads(_decoded(head)), json.loads(_decoded(body))
        issuer, expires, audience = str(claims["iss"]), float(claims["exp"]), claims["aud"]
    except (ValueError, KeyError, TypeError):
        raise _invalid("The ID Token provided is not a valid JWT") from None
    providers = iam_backends[account][partition].open_id_providers.values()
    provider = next((each for each in providers if f"https://{each.url}" == issuer), None)
    if provider is None:
        raise _invalid(f"No OpenIDConnect provider found in your account for {issuer}")
    keys = _document(issuer, _jwks_path(issuer, account, partition), account, partition)
    _verify(_key(keys, header.get("kid")), f"{head}.{body}".encode(), _decoded(signature), header.get("alg"))
    if expires + _SKEW < time.time():
        raise _RefusedError(
            "ExpiredTokenException", f"Token expired at {int(expires)}, now {int(time.time())}"
        )
    audiences = audience if isinstance(audience, list) else [audience]
    if not {*audiences} & {*provider.client_id_list}:
        raise _invalid("Incorrect token audience")
    return {**claims, "aud": audiences}


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _jwks_path(issuer: str, account: str, partition: str) -> str:
    found = _document(issuer, ".well-known/openid-configuration", account, partition)
    uri = str(found.get("jwks_uri"))
    if found.get("issuer") != issuer or not uri.startswith(f"{issuer}/"):
        raise _invalid(_NO_KEY)
    return uri.removeprefix(f"{issuer}/")


def _document(issuer: str, path: str, account: str, partition: str) -> Mapping[str, Any]:
    """A document of the issuer, if its server may read it."""
    match = _BUCKET_URL.fullmatch(issuer)
    if match:
        return _read(match[1], path, None, account, partition)
    for each in cloudfront_backends[account][partition].distributions.values():
        if issuer == f"https://{each.domain_name}":
            return _distributed(each, path, account, partition)
    raise _invalid(_NO_KEY)


def _distributed(distribution: Any, path: str, account: str, partition: str) -> Mapping[str, Any]:
    """A document that a distribution reads from its bucket with signed requests."""
    config = distribution.distribution_config
    (origin,) = config.Origins["Items"]
    controls = cloudfront_backends[account][partition].origin_access_controls
    control = controls.get(origin.origin_access_control_id)
    match = _BUCKET_URL.fullmatch(f"https://{origin.domain_name}")
    if not config.Enabled or match is None:
        raise _invalid(_NO_KEY)
    signs = control is not None and control.signing_behavior == "always"
    key = f"{origin.origin_path}/{path}".removeprefix("/")
    return _read(match[1], key, distribution.arn if signs else None, account, partition)


def _read(name: str, key: str, by: str | None, account: str, partition: str) -> Mapping[str, Any]:
    """The JSON of an object, read by the distribution ``by``, or anonymously."""
    bucket = s3_backends[account][partition].buckets.get(name)
    found = bucket.keys.get(key) if bucket is not None else None
    if bucket is None or found is None:
        raise _invalid(_NO_KEY)
    resource = f"arn:{partition}:s3:::{name}/{key}"
    statements = json.loads(bucket.policy)["Statement"] if bucket.policy else []
    if not any(_lets_read(each, resource, by) for each in statements) or (by is None and _shut(bucket)):
        raise _invalid(_NO_KEY)
    document: Mapping[str, Any] = json.loads(found.value)
    return document


def _lets_read(statement: Mapping[str, Any], resource: str, by: str | None) -> bool:
    """Whether a statement allows reading an object: to everyone, or to the distribution ``by``, by its
    ARN."""
    if statement["Effect"] != "Allow" or statement["Action"] != "s3:GetObject":
        return False
    named, condition = statement["Resource"], statement.get("Condition")
    if not any(fnmatchcase(resource, each) for each in ([named] if isinstance(named, str) else named)):
        return False
    if by is None:
        return statement["Principal"] in ("*", {"AWS": "*"}) and not condition
    service = {"Service": "cloudfront.amazonaws.com"}
    return bool(statement["Principal"] == service and condition == {"StringEquals": {"aws:SourceArn": by}})


def _shut(bucket: Any) -> bool:
    """Whether the bucket ignores public policies."""
    block = bucket.public_access_block
    return block is not None and str(block.restrict_public_buckets).lower() == "true"


def _key(found: Mapping[str, Any], ident: str | None) -> Mapping[str, Any]:
    for each in found.get("keys", ()):
        if each.get("kid") == ident and each.get("kty") == "RSA":
            key: Mapping[str, Any] = each
            return key
    raise _invalid("No matching key found in your identity provider's key set")


def _verify(key: Mapping[str, Any], signed: bytes, signature: bytes, algorithm: str | None) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import padding, rsa
    from cryptography.hazmat.primitives.hashes import SHA256

    modulus, exponent = (int.from_bytes(_decoded(key[name]), "big") for name in ("n", "e"))
    if algorithm != "RS256":
        raise _invalid(f"The ID Token is signed with {algorithm}, not with RS256")
    try:
        public = rsa.RSAPublicNumbers(exponent, modulus).public_key()
        public.verify(signature, signed, padding.PKCS1v15(), SHA256())
    except InvalidSignature:
        raise _invalid("The ID Token's signature is not valid") from None


def _trusted(iam: Any, arn: str, claims: Mapping[str, Any]) -> None:
    """Check that the role's trust policy allows these claims: StringEquals on ``aud`` and ``sub``."""
    role = next((each for each in iam.roles.values() if each.arn == arn), None)
    document = json.loads(role.assume_role_policy_document) if role is not None else {"Statement": []}
    statements = document["Statement"]
    issuer = claims["iss"].removeprefix("https://")
    for statement in statements if isinstance(statements, list) else [statements]:
        federated = str(statement.get("Principal", {}).get("Federated", ""))
        if not federated.endswith(f":oidc-provider/{issuer}"):
            continue
        wanted = statement.get("Condition", {}).get("StringEquals", {})
        if all(_said(claims, name.removeprefix(f"{issuer}:"), value) for name, value in wanted.items()):
            return
    raise _RefusedError("AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")


def _said(claims: Mapping[str, Any], name: str, wanted: str | list[str]) -> bool:
    given = claims.get(name)
    values = given if isinstance(given, list) else [given]
    return bool({*values} & ({*wanted} if isinstance(wanted, list) else {wanted}))
