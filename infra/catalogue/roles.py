"""The Chef roles of machines, and their recipes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from infra.catalogue.tables import table

GPU_WORKER: Final = "gpu-worker"
WAYS_IN: Final = frozenset({"access-gateway", "ssh-node"})
"""Roles through which users connect. Their machines are nodes if there is a cluster."""
GATEWAYS: Final = frozenset({"access-gateway", "site-gateway"})
"""Roles of machines that accept connections from outside, at ports in the spec, and have their own nftables
tables."""
SERVERS_FIRST: Final = (
    "control-plane", "site-gateway", "access-gateway", "nfs-server", "worker", GPU_WORKER, "ssh-node",
)  # fmt: skip
"""The order of roles on a machine with several: those that serve others come first."""

_WORKERS: Final = frozenset({"worker", GPU_WORKER})
_KUBELET: Final = frozenset({"kubernetes::worker", "kubernetes::control_plane"})
"""Recipes that make a machine a node."""


@dataclass(frozen=True, slots=True)
class Role:
    """A Chef role."""

    name: str
    description: str
    run_list: tuple[str, ...]
    """``role[…]`` and ``recipe[…]``, in order."""


@cache
def roles(*, alone: bool = False) -> Mapping[str, Role]:
    """Name → role, without those of a GPU family: ``gpu-worker-pascal``. ``alone``: without a cluster, where
    no machine is a node."""
    found = {name: row.get("alone", row) if alone else row for name, row in table("roles").items()}
    return {name: Role(name, row["description"], tuple(row["run_list"])) for name, row in found.items()}


def family_role(family: str) -> str:
    """``gpu-worker-pascal`` for an architecture's name."""
    return f"{GPU_WORKER}-{family}"


def family_of(role: str) -> str | None:
    """The architecture in a role's name, whether or not it exists; None for any other role."""
    return role.removeprefix(f"{GPU_WORKER}-") if role.startswith(f"{GPU_WORKER}-") else None


def recipes(run_list: Sequence[str], *, alone: bool = False) -> tuple[str, ...]:
    """A run list with roles expanded: ``base``, ``kubernetes::worker``; each recipe at its first position."""
    found: dict[str, None] = {}
    for entry in run_list:
        kind, _, name = entry.rstrip("]").partition("[")
        if kind == "recipe":
            found.setdefault(name)
        else:
            family = family_of(name)
            inner = roles(alone=alone)[GPU_WORKER if family else name].run_list
            found.update(dict.fromkeys(recipes(inner, alone=alone)))
    return tuple(found)


def makes_node(its_roles: Iterable[str]) -> bool:
    """Whether a machine with these roles is a node if there is a cluster, even one that runs no pods."""
    return not _KUBELET.isdisjoint(recipes([f"role[{role}]" for role in sorted(its_roles)]))


def runs_pods(its_roles: Iterable[str]) -> bool:
    """Whether a machine with these roles runs users' pods."""
    return not _WORKERS.isdisjoint(its_roles)
