"""Container images, by the parts of their names."""

from __future__ import annotations

from msgspec import Struct


class ContainerImage(Struct, frozen=True):
    """A container image that the cluster pulls."""

    registry: str
    """``docker.io``."""
    repository: str
    """``library/busybox``."""
    tag: str
    """Empty for one that only a digest names."""
    digest: str = ""
    """``sha256:…``, where the name has one."""
    users: tuple[str, ...] = ()
    """Add-ons and parts of the cluster that run it, sorted."""

    @property
    def name(self) -> str:
        """In full: ``docker.io/library/busybox:1.37.0``."""
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.registry}/{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


def parse(name: str, users: tuple[str, ...] = ()) -> ContainerImage:
    """An image by its name, with the defaults that container runtimes have (distribution/reference):
    ``docker.io``, ``library/``, ``latest``."""
    rest, _, digest = name.partition("@")
    first, slash, last = rest.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, rest = first, last
    else:
        registry = "docker.io"
    repository, _, tag = rest.partition(":")
    if registry == "docker.io" and "/" not in repository:
        repository = f"library/{repository}"
    return ContainerImage(registry, repository, tag or ("" if digest else "latest"), digest, users)
