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
    """Admission policies for the numeric ids with which pods access files: those of their namespace's user or
    group only.

    NFS, EFS and the machines' own paths check numeric ids, and a pod may choose its own. So in namespaces of
    users and groups

    - volume types that could show other users' files are refused: ``nfs``, inline CSI volumes, host paths;
    - pods that mount a path of the machines get the ids of the namespace: missing ones are set, and others
      are refused, in each container and in the templates of workloads;
    - such containers cannot gain privileges: a setuid program of root's would change the uid;
    - supplementary groups come only from the pod (``supplementalGroupsPolicy: Strict``): by default a line in
      the image's ``/etc/group`` adds its user to any group (Kubernetes, "Configure a Security Context").

    Network policies prevent pods from connecting to NFS servers themselves (``namespaces``).

    Returns ``volumes.yaml`` and ``numbers.yaml``.
    """
    claims, api = claims_on_paths(cluster), mutating_api(cluster.kubernetes.version)
    numbers = [
        filled("identities/numbers-written", api=api, claims=claims),
        filled("identities/numbers-kept", claims=claims),
    ]
    return {"volumes.yaml": static("identities/volumes"), "numbers.yaml": joined(numbers) if claims else []}
