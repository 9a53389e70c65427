"""Home directories on EFS: created for each user, and copied to S3 every night.

An NFS server does both for its own exports, even if the cluster is unavailable (cookbook ``storage``, recipe
``server``).
"""

from __future__ import annotations

from typing import Final

from infra.catalogue import addons
from infra.model import Cluster, Outputs
from infra.model.platform import Copy
from infra.render.kubernetes.manifests import SYSTEM, Documents, Manifest, filled, joined, of
from infra.render.templating import copied

HOME: Final = "/home"


def objects(cluster: Cluster, _outputs: Outputs) -> Documents:
    """``people.yaml``, ``homes.yaml`` and ``copies.yaml``."""
    copies = [_copy(copy) for copy in cluster.storage.copies if copy.kind == "efs"]
    return {**_homes(cluster), "copies.yaml": joined(copies)}


def _homes(cluster: Cluster) -> Documents:
    """The job that creates homes on EFS: in a region only a client can create a new user's home."""
    regions = sorted({each.site for each in cluster.storage.efs if each.path == HOME})
    people = "".join(f"{user.login} {user.uid}\n" for user in cluster.access.users)
    if not regions or not people:
        return {}
    data = {"people": people, "make-homes": copied("kubernetes")["make-homes"]}
    return {
        "people.yaml": [of("v1", "ConfigMap", "homes", namespace=SYSTEM, data=data)],
        "homes.yaml": filled("homes/homes", regions=regions, busybox=addons.image("busybox")),
    }


def _copy(copy: Copy) -> Manifest:
    return filled(
        "homes/copy",
        name=f"copy-{copy.name}",
        schedule=f"{copy.minute} {copy.hour} * * *",
        site=copy.site,
        path=copy.path,
        destination=f":s3:{copy.bucket}/{copy.prefix.rstrip('/')}",
        region=copy.region,
        busybox=addons.image("busybox"),
        rclone=addons.image("rclone"),
    )
