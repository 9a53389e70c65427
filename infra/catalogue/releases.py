"""Releases of Kubernetes and Ubuntu.

Sources: https://kubernetes.io/releases/ and https://ubuntu.com/about/release-cycle, as of November 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from infra.catalogue.tables import table

CANONICAL: Final = {"aws": "099720109477", "aws-cn": "837727238323", "aws-us-gov": "513442679011"}
"""AWS partition → the account that publishes Ubuntu's images there (https://documentation.ubuntu.com/aws/)."""

DEBIAN: Final = {"x86_64": "amd64", "arm64": "arm64"}
"""AWS's name of an architecture → Debian's."""


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """A Kubernetes minor version."""

    version: str
    """``1.36``."""
    ends: str
    """The date of its end of life, ISO 8601."""
    supported: bool
    """Whether it was one of the three minor versions supported upstream when the table was made."""
    kubeadm: tuple[str, ...] = ()
    """The output of ``kubeadm config images list`` in the tested release; empty for a minor version without
    one."""

    @property
    def patch(self) -> int | None:
        """The patch number of the tested release, which is in the tags of its images."""
        tags = (name.rpartition(":v")[2] for name in self.kubeadm if "/kube-apiserver:" in name)
        return next((int(tag.rpartition(".")[2]) for tag in tags), None)


@dataclass(frozen=True, slots=True)
class Ubuntu:
    """An Ubuntu release with long-term support."""

    version: str
    """``24.04``."""
    codename: str
    """``noble``."""
    ends: str
    """The month in which standard support ends."""
    images: str
    """Canonical's type of image on AWS: ``hvm-ssd``, ``hvm-ssd-gp3``."""

    def image_name(self, architecture: str) -> str:
        """The name pattern of Canonical's server images, for ``x86_64`` or ``arm64``."""
        return (
            f"ubuntu/images/{self.images}/"
            f"ubuntu-{self.codename}-{self.version}-{DEBIAN[architecture]}-server-*"
        )


@cache
def kubernetes(version: str) -> Kubernetes | None:
    """The minor version (``1.36``), or None."""
    row = table("releases")["kubernetes"].get(version)
    if row is None:
        return None
    return Kubernetes(version, row["ends"], row.get("supported", False), tuple(row.get("kubeadm", ())))


@cache
def kubernetes_versions() -> Sequence[str]:
    """All minor versions in the table, oldest first."""
    return tuple(sorted(table("releases")["kubernetes"], key=lambda one: int(one.partition(".")[2])))


@cache
def ubuntu(version: str) -> Ubuntu | None:
    """The release with this version, or None."""
    row = table("releases")["ubuntu"].get(version)
    return Ubuntu(version, row["codename"], row["ends"], row["images"]) if row else None


@cache
def ubuntu_versions() -> Sequence[str]:
    """All releases in the table, oldest first."""
    return tuple(sorted(table("releases")["ubuntu"]))
