"""Parts of the cluster beyond its core: what each is, where it comes from, and in which version it is tested.

An add-on is manifests of ours with an ``image``, or a Helm ``chart``, whose own images it brings. Sources are
in ``sources.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

from infra.catalogue.tables import table

Where: TypeAlias = Literal["always", "gpus", "efa", "efs", "s3", "nfs"]
"""What a cluster must have for an add-on to make sense: GPUs, adapters, file systems, buckets, exports."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A Helm chart."""

    repository: str
    """``https://…``, or ``oci://…`` without the chart's name."""
    name: str
    version: str
    """The tested one."""
    namespace: str
    """Where it is installed."""
    minors: tuple[str, ...] = ()
    """The first and the last minor of Kubernetes that its makers list this version for; empty where they name
    no last one."""
    images: tuple[str, ...] = ()
    """Container images of the tested version with the values that Causeway sets."""

    def lists(self, minor: str) -> bool:
        """Whether it is known to work with a minor, or nothing to the contrary is."""
        if not self.minors:
            return True
        first, last = (tuple(map(int, each.split("."))) for each in self.minors)
        return first <= tuple(map(int, minor.split("."))) <= last


@dataclass(frozen=True, slots=True)
class AddOn:
    """A part that the spec turns on and off."""

    name: str
    does: str
    """Half a sentence: what it is for."""
    default: bool
    """Whether it is on where the spec does not say."""
    where: Where
    chart: str | None
    """A chart's name, which ``chart`` knows."""
    image: str | None
    """For manifests of ours: an image's name, which ``image`` knows."""
    part_of: str | None
    """The add-on whose chart brings it."""
    needs: tuple[str, ...]
    """Add-ons that must be on as well."""
    images: tuple[str, ...] = ()
    """For a part of another add-on's chart: the container images that it adds."""


@cache
def find(name: str) -> AddOn | None:
    """The add-on of that name, or None."""
    row: Mapping[str, Any] | None = table("addons")["addons"].get(name)
    if row is None:
        return None
    return AddOn(
        name=name,
        does=row["does"],
        default=row.get("default", True),
        where=row.get("where", "always"),
        chart=row.get("chart"),
        image=row.get("image"),
        part_of=row.get("part_of"),
        needs=tuple(row.get("needs", ())),
        images=tuple(row.get("images", ())),
    )


@cache
def names() -> Sequence[str]:
    """Every add-on, sorted."""
    return tuple(sorted(table("addons")["addons"]))


@cache
def chart(name: str) -> Chart:
    """The chart of that name. KeyError for one that no add-on uses."""
    row = table("addons")["charts"][name]
    return Chart(
        row["repository"],
        row["chart"],
        row["version"],
        row["namespace"],
        tuple(row.get("minors", ())),
        tuple(row["images"]),
    )


@cache
def image(name: str) -> str:
    """``repository:tag`` of an image: ``image("flannel")`` is ``ghcr.io/flannel-io/flannel:v…``. KeyError for
    one that nothing uses."""
    row = table("addons")["images"][name]
    return f"{row['repository']}:{row['tag']}"


def tested(one: AddOn) -> str | None:
    """The version of its chart, or of its image; None for what comes with another add-on."""
    if one.chart is not None:
        return chart(one.chart).version
    return image(one.image).rpartition(":")[2] if one.image is not None else None
