"""What people with rights in a namespace may still not do, as it would be to the loss of others or their own:
hosts of pages, claims on the paths of machines, places in queues, parts of GPUs, packets of one's own making.

Each policy says why (``templates/kubernetes/guards`` and ``static/guards``).
"""

from __future__ import annotations

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, filled, mutating_api, static
from infra.render.kubernetes.volumes import claims_made_beforehand


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``names.yaml``, ``claims.yaml``, ``queues.yaml``, ``gpus.yaml`` and ``packets.yaml``."""
    ingress, claims = cluster.kubernetes.ingress, claims_made_beforehand(cluster)
    has = cluster.kubernetes.has
    return {
        "names.yaml": filled(
            "guards/names", ingress=ingress.fqdn, domain=f".{ingress.fqdn.partition('.')[2]}"
        )
        if ingress is not None
        else [],
        "claims.yaml": filled("guards/claims", claims=claims) if claims else [],
        "queues.yaml": static("guards/queues") if has("kueue") else [],
        "gpus.yaml": static("guards/gpus") if has("jobset") else [],
        "packets.yaml": filled("guards/packets", api=mutating_api(cluster.kubernetes.version)),
    }
