"""What Chef runs on a machine."""

from __future__ import annotations

from collections.abc import Sequence

from infra.catalogue import roles
from infra.model.places import Gpus


def run_list(its_roles: Sequence[str], gpus: Gpus | None) -> tuple[str, ...]:
    """A machine's roles, what serves others first. GPUs have their driver, whatever the machine is for."""
    ordered = sorted(its_roles, key=roles.SERVERS_FIRST.index)
    entries = (f"role[{_role(role, gpus)}]" for role in ordered)
    if gpus is not None and roles.GPU_WORKER not in its_roles:
        return ("role[base]", "recipe[gpu]", *entries)
    return tuple(entries)


def _role(role: str, gpus: Gpus | None) -> str:
    return roles.family_role(gpus.family) if role == roles.GPU_WORKER and gpus is not None else role
