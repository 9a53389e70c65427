"""Internal pages at https://<name>.<internal domain>: the authority, its certificate for all of them, and
their ways in.

The authority's key comes from the secrets store as the Secret ``internal-ca``. Traefik shows its certificate,
which is good for every name below the domain, also for pages that people add; cert-manager renews it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.kubernetes import Page
from infra.render.kubernetes.manifests import Documents, Object, of

ISSUER: Final = "internal"
AUTHORITY: Final = "internal-ca"
"""The Secret with the authority's certificate and key, in the namespace of our own components."""

_CERTIFICATE: Final = "internal-pages"
_INGRESS: Final = "ingress"


class _Service(NamedTuple):
    namespace: str
    name: str
    port: int


_SERVICES: Final = {
    "alertmanager": _Service("monitoring", "monitoring-alertmanager", 9093),
    "grafana": _Service("monitoring", "grafana", 80),
    "prometheus": _Service("monitoring", "monitoring-prometheus", 9090),
}
"""Page → what answers for it."""


def url(cluster: Cluster, name: str) -> str | None:
    """Where a page is; None without an ingress."""
    ingress = cluster.kubernetes.ingress
    pages = ingress.pages if ingress is not None else ()
    return next((f"https://{page.fqdn}/" for page in pages if page.name == name), None)


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``authority.yaml`` and ``pages.yaml``; nothing without an ingress."""
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
        "pages.yaml": [_page(page) for page in ingress.pages],
    }


def _page(page: Page) -> Object:
    service = _SERVICES[page.name]
    backend = {"service": {"name": service.name, "port": {"number": service.port}}}
    return of(
        "networking.k8s.io/v1",
        "Ingress",
        page.name,
        namespace=service.namespace,
        annotations={
            "traefik.ingress.kubernetes.io/router.entrypoints": "websecure",
            "traefik.ingress.kubernetes.io/router.tls": "true",
        },
        spec={
            "ingressClassName": "traefik",
            "rules": [
                {
                    "host": page.fqdn,
                    "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
                }
            ],
        },
    )
