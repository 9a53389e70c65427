"""Internal pages, https://<namespace>.<internal domain>: the authority and its certificate for all of them.

The authority's key comes from the secrets store as the Secret ``internal-ca``. Traefik shows its certificate,
which is good for every name below the domain; cert-manager renews it.
"""

from __future__ import annotations

from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, of

ISSUER: Final = "internal"
AUTHORITY: Final = "internal-ca"
"""The Secret with the authority's certificate and key, in the namespace of our own components."""

_CERTIFICATE: Final = "internal-pages"
_INGRESS: Final = "ingress"


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``authority.yaml``; nothing without an ingress."""
    ingress = cluster.kubernetes.ingress
    if ingress is None:
        return {}
    domain = ingress.fqdn.partition(".")[2]
    return {
        "authority.yaml": [
            of("cert-manager.io/v1", "ClusterIssuer", ISSUER, spec={"ca": {"secretName": AUTHORITY}}),
            of(
                "cert-manager.io/v1",
                "Certificate",
                _CERTIFICATE,
                namespace=_INGRESS,
                spec={
                    "secretName": _CERTIFICATE,
                    "issuerRef": {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": ISSUER},
                    "commonName": ingress.fqdn,
                    "dnsNames": [ingress.fqdn, f"*.{domain}"],
                    "usages": ["digital signature", "key encipherment", "server auth"],
                    "duration": "2160h",
                    "renewBefore": "720h",
                    "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                },
            ),
            of(
                "traefik.io/v1alpha1",
                "TLSStore",
                # The one of this name is used where a page says nothing.
                "default",
                namespace=_INGRESS,
                spec={"defaultCertificate": {"secretName": _CERTIFICATE}},
            ),
        ],
    }
