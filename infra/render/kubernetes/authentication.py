"""Whose tokens the API server takes besides its own: an issuer of the spec's people.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#using-authentication-configuration
"""

from __future__ import annotations

import json
from typing import Any, Final

from infra.model import Cluster
from infra.model.platform import Oidc
from infra.render.kubernetes.manifests import Object

FOLDER: Final = "/etc/kubernetes/authentication"
"""On masters. A folder, which the API server's container sees as it changes; of a file alone it would keep
the one that was there when it started."""
FILE: Final = f"{FOLDER}/config.yaml"
_STABLE: Final = (1, 34)
"""The first version with the stable form of the file."""


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
    """A token says who somebody is, no more: only names of the table come out of it, which are logins of the
    spec, so nobody is ``system:…`` by it; rights and limits are those of the person's certificates."""
    authority = {"certificateAuthority": oidc.authority} if oidc.authority else {}
    claim = f"claims.{oidc.claim}"
    # Else an address would be whatever somebody typed at the issuer.
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
    """A map of CEL, whose strings are written as JSON's, but for pairs of surrogates: those it refuses."""
    return json.dumps(dict(oidc.people), sort_keys=True, ensure_ascii=False)
