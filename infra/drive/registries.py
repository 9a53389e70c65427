"""Registries of container images: the digest and the size of an image (OCI distribution specification 1.1).

Queried as nodes do: without credentials, with an anonymous token if the registry requires one
(https://distribution.github.io/distribution/spec/auth/token/). Uses the proxies in the environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from infra.errors import DriveError
from infra.model.containers import ContainerImage

if TYPE_CHECKING:
    from urllib.request import Request

_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_SECONDS: Final = 20
_AT_ONCE: Final = 8
_MOST: Final = 4 * 2**20
"""Maximum bytes of a manifest: what registries must accept (specification, "Pushing manifests")."""
_HOSTS: Final = {"docker.io": "registry-1.docker.io"}
"""Registries whose API has another host name."""


class RegistryError(DriveError):
    """A registry did not return an image's manifest."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of an image."""

    digest: str
    """The digest of what the tag names: an index for several architectures."""
    size: int
    """Compressed bytes that a node downloads: the largest of the given architectures."""


def ask_all(
    images: Sequence[ContainerImage], architectures: Collection[str]
) -> list[Manifest | RegistryError]:
    """The manifest of each image, or the error."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return list(pool.map(lambda image: _asked(image, architectures), images))


def _asked(image: ContainerImage, architectures: Collection[str]) -> Manifest | RegistryError:
    try:
        return ask(image, architectures)
    except RegistryError as problem:
        return problem


def ask(image: ContainerImage, architectures: Collection[str]) -> Manifest:
    """Digest and size of an image; ``architectures`` in Debian's names. Raises ``RegistryError``."""
    tokens: dict[str, str] = {}
    body = _manifest(image, image.digest or image.tag, tokens)
    digest = f"sha256:{sha256(body).hexdigest()}"
    if image.digest and digest != image.digest:
        raise RegistryError(f"{image.name}: the registry answers with {digest}")
    found = _read(image, body)
    if found.get("mediaType") in _INDEXES or "manifests" in found:
        wanted = [
            each["digest"]
            for each in found["manifests"]
            if (where := each.get("platform") or {}).get("os") == "linux"
            and where.get("architecture") in architectures
        ]
        if not wanted:
            raise RegistryError(f"{image.name} is not there for {', '.join(sorted(architectures))}")
        return Manifest(digest, max(_size(_read(image, _manifest(image, one, tokens))) for one in wanted))
    return Manifest(digest, _size(found))


def _read(image: ContainerImage, body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not ({"manifests", "layers"} & {*found}):
        raise RegistryError(f"{image.name}: the registry's answer is not a manifest")
    return found


def _size(manifest: Mapping[str, Any]) -> int:
    return int(manifest["config"]["size"]) + sum(int(each["size"]) for each in manifest["layers"])


def _manifest(image: ContainerImage, reference: str, tokens: dict[str, str]) -> bytes:
    """The bytes of a manifest. ``tokens``: those already issued for this image."""
    from urllib.error import HTTPError
    from urllib.request import Request

    host = _HOSTS.get(image.registry, image.registry)
    # As in container runtimes, a registry on this computer does not need TLS.
    scheme = "http" if re.match(r"(localhost|127\.[\d.]+)(:\d+)?$", host) else "https"
    url = f"{scheme}://{host}/v2/{image.repository}/manifests/{reference}"
    headers = {"Accept": ", ".join((*_INDEXES, *_MANIFESTS)), **tokens}
    try:
        return _get(Request(url, headers=headers))  # noqa: S310 - https, or this machine
    except HTTPError as refused:
        refused.close()
        wanted = refused.headers.get("WWW-Authenticate") or ""
        if refused.code != 401 or tokens or not wanted.lower().startswith("bearer "):
            raise RegistryError(f"{image.name}: {host} answers {refused.code} {refused.reason}") from None
    except (OSError, ValueError) as problem:
        raise RegistryError(f"{image.name}: {host} does not answer: {_words(problem)}") from None
    tokens["Authorization"] = f"Bearer {_token(image, wanted)}"
    return _manifest(image, reference, tokens)


def _token(image: ContainerImage, wanted: str) -> str:
    """An anonymous token, from the server that the registry names."""
    from urllib.error import HTTPError
    from urllib.parse import urlencode
    from urllib.request import Request

    asked = dict(re.findall(r'(\w+)="([^"]*)"', wanted))
    realm = asked.pop("realm", "")
    query = urlencode({key: asked[key] for key in ("service", "scope") if key in asked})
    try:
        said = json.loads(_get(Request(f"{realm}?{query}")))  # noqa: S310 - as the registry says
        return str(said.get("token") or said["access_token"])
    except (OSError, ValueError, KeyError, AttributeError) as problem:
        if isinstance(problem, HTTPError):
            problem.close()
        why = f"{image.registry} gives no anonymous token: {_words(problem)}"
        raise RegistryError(f"{image.name}: {why}") from None


def _get(request: Request) -> bytes:
    from urllib.request import urlopen

    with urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - callers say where
        body: bytes = answer.read(_MOST + 1)
    if len(body) > _MOST:
        raise ValueError("more than 4 MiB")
    return body


def _words(problem: BaseException) -> str:
    return str(getattr(problem, "reason", "") or problem)
