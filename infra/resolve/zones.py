"""The availability zone of each resource that cannot move to another zone; the lock file keeps it.

An instance's subnet and a NAT gateway's address belong to one zone. If the order of zones in the spec
decided, changing the list would replace the resources.
"""

from __future__ import annotations

from collections.abc import Mapping


class Zones:
    """Zones by owner: those in the lock are kept while the site has them, the others are assigned here."""

    def __init__(self, held: Mapping[str, str]) -> None:
        self.kept = dict(held)
        """The zones of the new lock file."""

    def zone(self, owner: str, available: tuple[str, ...], default: str) -> str:
        """The zone of ``owner``: the held one if it is ``available``, else ``default``."""
        held = self.kept.get(owner, "")
        self.kept[owner] = held if held in available else default
        return self.kept[owner]


def nat_owner(site: str) -> str:
    """The owner of a site's single NAT gateway: ``sites/us-west-2/nat``."""
    return f"sites/{site}/nat"


def instance_owner(site: str, hostname: str) -> str:
    """The owner of a named instance: ``sites/us-west-2/instances/master-1``."""
    return f"sites/{site}/instances/{hostname}"
