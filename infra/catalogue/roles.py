"""The Chef roles that machines can have, and the recipes that each stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from infra.catalogue.tables import table

GPU_WORKER: Final = "gpu-worker"
WAYS_IN: Final = frozenset({"access-gateway", "ssh-node"})
"""Roles that people come in by. Their machines are nodes where there is a cluster."""
GATEWAYS: Final = frozenset({"access-gateway", "site-gateway"})
"""Roles whose machines are met from outside, at ports of the spec, and have tables of their own."""
SERVERS_FIRST: Final = (
    "control-plane", "site-gateway", "access-gateway", "nfs-server", "worker", GPU_WORKER, "ssh-node",
)  # fmt: skip
"""The order in which a machine with several roles takes them on: what serves others comes first."""

_WORKERS: Final = frozenset({"worker", GPU_WORKER})
_KUBELET: Final = frozenset({"kubernetes::worker", "kubernetes::control_plane"})
"""Recipes that make a machine a node."""


@dataclass(frozen=True, slots=True)
class Role:
    """A Chef role."""

    name: str
    description: str
    run_list: tuple[str, ...]
    """``role[…]`` and ``recipe[…]``, in the order they run."""


@cache
def roles(*, alone: bool = False) -> Mapping[str, Role]:
    """Name → role, without those of a GPU family: ``gpu-worker-pascal``. ``alone``: as they are without
    a cluster, where no machine is a node."""
    found = {name: row.get("alone", row) if alone else row for name, row in table("roles").items()}
    return {name: Role(name, row["description"], tuple(row["run_list"])) for name, row in found.items()}


def family_role(family: str) -> str:
    """``gpu-worker-pascal``, of an architecture's name."""
    return f"{GPU_WORKER}-{family}"


def family_of(role: str) -> str | None:
    """The architecture that a role names, whether there is such a one or not; None for any other role."""
    return role.removeprefix(f"{GPU_WORKER}-") if role.startswith(f"{GPU_WORKER}-") else None


def recipes(run_list: Sequence[str], *, alone: bool = False) -> tuple[str, ...]:
    """A run list without roles: ``base``, ``kubernetes::worker``; each recipe where it comes first."""
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
    """Whether a machine with these roles is a node where there is a cluster, be it one that runs no pods."""
    return not _KUBELET.isdisjoint(recipes([f"role[{role}]" for role in sorted(its_roles)]))


def runs_pods(its_roles: Iterable[str]) -> bool:
    """Whether a machine with these roles is there for work."""
    return not _WORKERS.isdisjoint(its_roles)
