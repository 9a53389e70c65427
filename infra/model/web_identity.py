"""How AWS knows tokens of the cluster, and what they may become there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

Server: TypeAlias = Literal["s3", "cloudfront"]


class Issuer(Struct, frozen=True):
    """An address where the world finds the keys that the API server signs tokens of service accounts with.

    OpenID Connect Discovery 1.0: ``<url>/.well-known/openid-configuration`` names the key set.
    """

    served_by: Server
    folder: str
    """Where in the bucket its two documents are: empty, or with a slash at the end."""
    url: str | None
    """Tokens name it. None for one that only AWS knows (``Outputs.issuers``)."""


class WebIdentity(Struct, frozen=True):
    """The issuers of the cluster's tokens, and roles for those who hold them."""

    bucket: str
    """It holds the documents of the issuers and nothing else; public where it serves them itself."""
    region: str
    """Its AWS region."""
    tags: Mapping[str, str]
    issuers: tuple[Issuer, ...]
    """The first one signs; tokens of all are accepted."""
    roles: Mapping[str, str]
    """Namespace of a person or a group → the IAM role of its pods."""
