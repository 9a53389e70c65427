"""Admission policies that limit users with rights in a namespace, and the numeric ids of their pods."""

from __future__ import annotations

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, filled, joined, mutating_api, static
from infra.render.kubernetes.volumes import claims_made_beforehand, claims_on_paths


def guards(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Admission policies for actions that RBAC allows users in their namespace but that harm others or
    themselves: host names of pages, claims on machines' paths, queue positions, fractions of GPUs, raw
    packets.

    Each policy states its reason (``templates/kubernetes/guards`` and ``static/guards``).

    Returns ``names.yaml``, ``claims.yaml``, ``queues.yaml``, ``gpus.yaml`` and ``packets.yaml``.
    """
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


def identities(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """As whom pods use files: as their namespace's person or group, and as nobody else.

    NFS, EFS and the machines' own paths go by Unix numbers, and a pod may choose its own. So in namespaces of
    people and groups

    - volumes are of kinds that show nobody else's files: no ``nfs``, no driver's volume in line, no host
      path;
    - who mounts a path of the machines has the numbers of the namespace: what a pod does not say is written
      into it, and another number is refused, in each of its containers and in the templates of its work;
    - such containers gain no rights: a program of root's with the setuid bit would leave the number behind;
    - groups come from the pod alone (``supplementalGroupsPolicy: Strict``): by default a line of the image's
      ``/etc/group`` makes its user a member of any group (Kubernetes, "Configure a Security Context").

    Network policies keep pods from speaking NFS themselves (``namespaces``).

    Gives ``volumes.yaml`` and ``numbers.yaml``.
    """
    claims, api = claims_on_paths(cluster), mutating_api(cluster.kubernetes.version)
    numbers = [
        filled("identities/numbers-written", api=api, claims=claims),
        filled("identities/numbers-kept", claims=claims),
    ]
    return {"volumes.yaml": static("identities/volumes"), "numbers.yaml": joined(numbers) if claims else []}
