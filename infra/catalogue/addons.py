"""Add-ons: components beyond the cluster's core, their sources and tested versions.

An add-on is manifests of ours with an ``image``, or a Helm ``chart`` with its own images. Sources are in
``sources.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

from infra.catalogue.tables import table

Where: TypeAlias = Literal["always", "gpus", "efa", "efs", "s3", "nfs"]
"""What a cluster must have for an add-on to apply: GPUs, EFA interfaces, file systems, buckets, exports."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A Helm chart."""

    repository: str
    """``https://…``, or ``oci://…`` without the chart's name."""
    name: str
    version: str
    """The tested version."""
    namespace: str
    """The namespace in which it is installed."""
    minors: tuple[str, ...] = ()
    """The first and last minor version of Kubernetes that its documentation lists for this version; empty if
    it lists no last one."""
    images: tuple[str, ...] = ()
    """Container images of the tested version, with the values that Causeway sets."""

    def lists(self, minor: str) -> bool:
        """Whether it is known to work with a minor version, or nothing is known to the contrary."""
        if not self.minors:
            return True
        first, last = (tuple(map(int, each.split("."))) for each in self.minors)
        return first <= tuple(map(int, minor.split("."))) <= last


@dataclass(frozen=True, slots=True)
class AddOn:
    """An add-on that the spec enables or disables."""

    name: str
    does: str
    """Its purpose, in half a sentence."""
    default: bool
    """Whether it is enabled by default."""
    where: Where
    chart: str | None
    """The name of a chart, for ``chart``."""
    image: str | None
    """For manifests of ours: the name of an image, for ``image``."""
    part_of: str | None
    """The add-on whose chart includes it."""
    needs: tuple[str, ...]
    """Add-ons that must be enabled too."""
    images: tuple[str, ...] = ()
    """For a part of another add-on's chart: the container images that it adds."""


@cache
def find(name: str) -> AddOn | None:
    """The add-on with this name, or None."""
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
    """The chart with this name. Raises KeyError if no add-on uses it."""
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
    """``repository:tag`` of an image: ``image("flannel")`` is ``ghcr.io/flannel-io/flannel:v…``. Raises
    KeyError if nothing uses it."""
    row = table("addons")["images"][name]
    return f"{row['repository']}:{row['tag']}"


def tested(one: AddOn) -> str | None:
    """The version of its chart or image; None for a part of another add-on."""
    if one.chart is not None:
        return chart(one.chart).version
    return image(one.image).rpartition(":")[2] if one.image is not None else None
