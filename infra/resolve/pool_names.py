"""Names of a pool's groups in AWS: the name under which the pool was created.

AWS cannot rename an Auto Scaling group or a launch template: it would replace it, with every machine in it.
So a pool that is renamed (``renamed_from``) keeps the names of its groups. The lock file holds the pools
that were ever renamed: original name → later names, the last is the current one.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from itertools import count

from infra.schema.pools import Pool


@dataclass(frozen=True, slots=True)
class PoolNames:
    """The pools' names in AWS, and the entries of the lock."""

    born: Mapping[str, str]
    """Pool → the original name, used in its groups' names; unique per pool."""
    lock: Mapping[str, tuple[str, ...]]
    """Original name → later names, for pools that were renamed."""


def plan_pool_names(pools: Mapping[str, Pool], lock: Mapping[str, tuple[str, ...]]) -> PoolNames:
    """The original name of every pool. A pool that was removed keeps its entry until another pool takes its
    name."""
    chains = {born: [born, *names] for born, names in lock.items()}
    holders: dict[str, str] = {}
    for name, pool in sorted(pools.items()):
        if pool.renamed_from is not None and pool.renamed_from not in pools:
            born = _renamed(chains, name, pool.renamed_from)
            if born is not None:
                holders[name] = born
    for born, chain in chains.items():
        if chain[-1] in pools and born not in holders.values():
            holders.setdefault(chain[-1], born)
    for born, chain in chains.items():
        if chain[-1] not in pools and born not in holders.values():
            _take_back(chain, pools.keys() - holders.keys())
            if chain[-1] in pools:
                holders[chain[-1]] = born
    for name in sorted(pools.keys() - holders.keys()):
        others = (f"{name}-{number}" for number in count(2))
        free = (each for each in others if each not in chains and each not in pools)
        holders[name] = born = name if name not in chains else next(free)
        chains[born] = [born] if born == name else [born, name]
    kept = {
        born: tuple(chain[1:])
        for born, chain in chains.items()
        if len(chain) > 1 and holders.get(chain[-1], born) == born
    }
    return PoolNames(holders, dict(sorted(kept.items())))


def _take_back(chain: list[str], unclaimed: Set[str]) -> None:
    """Shorten a chain to its last name that is a pool again: the rename was reverted."""
    last = max((at for at, name in enumerate(chain) if name in unclaimed), default=len(chain) - 1)
    del chain[last + 1 :]


def _renamed(chains: dict[str, list[str]], name: str, old: str) -> str | None:
    """The original name of a pool that was called ``old``; its chain then ends with ``name``."""
    for born, chain in chains.items():
        if chain[-1] == old:
            chain.append(name)
            return born
    for born, chain in chains.items():
        if chain[-2:] == [old, name]:
            return born  # known from an earlier run
    if old in chains:
        return None  # the pool has since been renamed to another name: there is nothing to take over
    chains[old] = [old, name]
    return old
