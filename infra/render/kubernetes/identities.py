"""As whom pods use files: as their namespace's person or group, and as nobody else.

NFS, EFS and the machines' own paths go by Unix numbers, and a pod may choose its own. So in namespaces of
people and groups

- volumes are of kinds that show nobody else's files: no ``nfs``, no driver's volume in line, no host path;
- who mounts a path of the machines has the numbers of the namespace: what a pod does not say is written into
  it, and another number is refused, in each of its containers and in the templates of its work;
- such containers gain no rights: a program of root's with the setuid bit would leave the number behind;
- groups come from the pod alone (``supplementalGroupsPolicy: Strict``): by default a line of the image's
  ``/etc/group`` makes its user a member of any group (Kubernetes, "Configure a Security Context").

Network policies keep pods from speaking NFS themselves (``namespaces``).
"""

from __future__ import annotations

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, filled, joined, mutating_api, static
from infra.render.kubernetes.volumes import claims_on_paths


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``volumes.yaml`` and ``numbers.yaml``."""
    claims, api = claims_on_paths(cluster), mutating_api(cluster.kubernetes.version)
    numbers = [
        filled("identities/numbers-written", api=api, claims=claims),
        filled("identities/numbers-kept", claims=claims),
    ]
    return {"volumes.yaml": static("identities/volumes"), "numbers.yaml": joined(numbers) if claims else []}
