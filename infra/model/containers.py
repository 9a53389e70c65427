"""Container images, with their names split into parts."""

from __future__ import annotations

from msgspec import Struct


class ContainerImage(Struct, frozen=True):
    """A container image that the cluster pulls."""

    registry: str
    """``docker.io``."""
    repository: str
    """``library/busybox``."""
    tag: str
    """Empty for an image that only has a digest."""
    digest: str = ""
    """``sha256:…``, if the name has one."""
    users: tuple[str, ...] = ()
    """Add-ons and components that use it, sorted."""

    @property
    def name(self) -> str:
        """The full name: ``docker.io/library/busybox:1.37.0``."""
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.registry}/{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


def parse(name: str, users: tuple[str, ...] = ()) -> ContainerImage:
    """Parse a name, with the defaults of container runtimes (distribution/reference): ``docker.io``,
    ``library/``, ``latest``."""
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
