"""Authentication of users by OIDC tokens, besides those of the API server itself.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#using-authentication-configuration
"""

from __future__ import annotations

import json
from typing import Any, Final

from infra.model import Cluster
from infra.model.platform import Oidc
from infra.render.kubernetes.manifests import Object

FOLDER: Final = "/etc/kubernetes/authentication"
"""The folder on masters. A folder rather than a file is mounted in the API server's container, because a
mounted file would keep the contents it had at the start."""
FILE: Final = f"{FOLDER}/config.yaml"
_STABLE: Final = (1, 34)
"""The first version in which the file's API is stable."""


def configuration(cluster: Cluster) -> Object | None:
    """AuthenticationConfiguration; None without an issuer."""
    oidc = cluster.access.oidc
    if oidc is None:
        return None
    version = "v1" if cluster.kubernetes.minor >= _STABLE else "v1beta1"
    return {
        "apiVersion": f"apiserver.config.k8s.io/{version}",
        "kind": "AuthenticationConfiguration",
        "jwt": [_issuer(oidc)],
    }


def _issuer(oidc: Oidc) -> dict[str, Any]:
    """A token only identifies a user: the claim is mapped to a login of the spec, so nobody can become
    ``system:…``; rights and limits are the same as with the user's certificates."""
    authority = {"certificateAuthority": oidc.authority} if oidc.authority else {}
    claim = f"claims.{oidc.claim}"
    # Otherwise the address could be any that a user entered at the issuer.
    verified = {
        "expression": "claims.?email_verified.orValue(false) == true",
        "message": "the issuer has not verified the address",
    }
    return {
        "issuer": {"url": oidc.issuer, "audiences": [oidc.client], **authority},
        "claimValidationRules": [
            *([verified] if oidc.claim == "email" else []),
            {
                "expression": f"{claim}.lowerAscii() in {_table(oidc)}",
                "message": "the spec has no user with this name",
            },
        ],
        "claimMappings": {"username": {"expression": f"{_table(oidc)}[{claim}.lowerAscii()]"}},
    }


def _table(oidc: Oidc) -> str:
    """A CEL map. CEL strings are written like JSON's, except for surrogate pairs, which CEL refuses."""
    return json.dumps(dict(oidc.people), sort_keys=True, ensure_ascii=False)
