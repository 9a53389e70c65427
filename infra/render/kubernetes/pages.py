"""Internal pages, https://<namespace>.<internal domain>: the authority and its certificate for all of them.

The authority's key comes from the secrets store as the Secret ``internal-ca``. Traefik shows its certificate,
which is good for every name below the domain; cert-manager renews it.
"""

from __future__ import annotations

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, filled


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``authority.yaml``; nothing without an ingress."""
    ingress = cluster.kubernetes.ingress
    if ingress is None:
        return {}
    every = f"*.{ingress.fqdn.partition('.')[2]}"
    return {"authority.yaml": filled("after/pages/authority", host=ingress.fqdn, all_hosts=every)}
