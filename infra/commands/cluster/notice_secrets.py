"""The secrets of the autoscaler's notices: under which names the store has them, and the Secret they become.

``invoke autoscaler.secret`` keeps them; the controller mounts the Secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.drive.kubernetes.api import Api
    from infra.drive.secrets import Store
    from infra.model import Cluster


def names(cluster: Cluster) -> dict[str, str]:
    """Way → the name of its secret in the store."""
    settings = cluster.autoscaler
    found = {"slack": (settings.slack or "").removeprefix("#"), "webhook": settings.webhook or ""}
    return {way: name for way, name in found.items() if name}


def bring(api: Api, store: Store, cluster: Cluster) -> tuple[str, tuple[str, ...]]:
    """Make the Secret as the store has it: what was done, and the names that the store does not have."""
    from infra.drive.kubernetes import secret_objects
    from infra.render.kubernetes.autoscaler import NOTICES
    from infra.render.kubernetes.manifests import SYSTEM

    wanted = names(cluster)
    known = store.read(wanted.values()) if wanted else {}
    values = {way: known[name] for way, name in wanted.items() if name in known}
    missing = tuple(name for name in wanted.values() if name not in known)
    return secret_objects.put(api, SYSTEM, NOTICES, values), missing
