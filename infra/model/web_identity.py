"""How AWS knows tokens of the cluster, and what they may become there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Issuer:
    """Where the world finds the keys that the API server signs tokens of service accounts with.

    OpenID Connect Discovery 1.0: ``<url>/.well-known/openid-configuration`` names the key set.
    """

    bucket: str
    """A public bucket, which holds these two documents and nothing else."""
    region: str
    """Its AWS region."""
    url: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WebIdentity:
    """The issuer of the cluster's tokens, and roles for those who hold them."""

    issuer: Issuer
    roles: Mapping[str, str]
    """Namespace of a person or a group → the IAM role of its pods."""
