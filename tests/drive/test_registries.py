"""Digests and sizes from registries.

The registry here is a stand-in on this machine: it serves the manifests that it is given, and wants an
anonymous token, as Docker Hub and GitHub's registry do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from web import Answer, pages

from infra.drive import registries
from infra.drive.registries import Manifest, RegistryError
from infra.model.containers import parse

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass
class Registry:
    """What it has, and what it was asked."""

    port: int = 0
    manifests: dict[str, bytes] = field(default_factory=dict)
    """``repository:reference`` → body."""
    open: bool = False
    """Whether it wants no token."""
    token: str = "anonymous"
    asked: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def page(self, path: str, headers: Mapping[str, str]) -> Answer:
        self.asked.append(path)
        where = urlsplit(path)
        if where.path == "/token":
            assert parse_qs(where.query) == {"service": ["test"], "scope": ["repository:a/b:pull"]}
            return Answer(200, json.dumps({"token": self.token}).encode())
        if not self.open and headers["Authorization"] != "Bearer anonymous":
            realm = f"http://{self.name}/token"
            wanted = f'Bearer realm="{realm}",service="test",scope="repository:a/b:pull"'
            return Answer(401, b"", {"WWW_Authenticate": wanted})
        repository, _, reference = where.path.removeprefix("/v2/").rpartition("/manifests/")
        body = self.manifests.get(f"{repository}:{reference}")
        return Answer(404) if body is None else Answer(200, body)

    def put(self, repository: str, tag: str, body: dict[str, Any]) -> str:
        """Its digest."""
        raw = json.dumps(body).encode()
        digest = f"sha256:{sha256(raw).hexdigest()}"
        for reference in (tag, digest):
            self.manifests[f"{repository}:{reference}"] = raw
        return digest

    def image(self, repository: str, tag: str, *layers: int) -> str:
        """A manifest of an image with a configuration of 100 bytes."""
        return self.put(repository, tag, {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"size": 100},
            "layers": [{"size": each} for each in layers],
        })  # fmt: skip

    def index(self, repository: str, tag: str, **digests: str) -> str:
        """An index by architecture, with an attestation, as builders add them."""
        manifests = [
            {"digest": digest, "platform": {"os": "linux", "architecture": architecture}}
            for architecture, digest in digests.items()
        ]
        unknown = {"digest": "sha256:0", "platform": {"os": "unknown", "architecture": "unknown"}}
        return self.put(repository, tag, {"mediaType": INDEX, "manifests": [*manifests, unknown]})


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry = Registry()
    with pages(registry.page) as registry.port:
        yield registry


def test_an_index_is_known_by_its_own_digest_and_the_larger_architecture(registry: Registry) -> None:
    small, large = registry.image("a/b", "x", 10), registry.image("a/b", "y", 500, 400)
    digest = registry.index("a/b", "v1", amd64=small, arm64=large)
    image = parse(f"{registry.name}/a/b:v1")
    assert registries.ask(image, {"amd64"}) == Manifest(digest, 110)
    assert sum(path.startswith("/token") for path in registry.asked) == 1
    assert registries.ask(image, {"amd64", "arm64"}) == Manifest(digest, 1000)
    assert registries.ask(parse(f"{registry.name}/a/b@{digest}"), {"amd64"}) == Manifest(digest, 110)


def test_an_image_of_one_architecture(registry: Registry) -> None:
    registry.open = True
    digest = registry.image("a/b", "v1", 1, 2)
    assert registries.ask(parse(f"{registry.name}/a/b:v1"), {"amd64"}) == Manifest(digest, 103)


def test_what_can_not_be_said_is_said_so_and_holds_nothing_up(registry: Registry) -> None:
    digest = registry.image("a/b", "v1", 1)
    registry.index("a/b", "other", s390x=digest)
    registry.manifests["a/b:broken"] = b"<html>"
    names = ["v1", "gone", "other", "broken"]
    found = registries.ask_all([parse(f"{registry.name}/a/b:{name}") for name in names], {"amd64"})
    assert found[0] == Manifest(digest, 101)
    for name, problem, why in zip(names[1:], found[1:], ("404", "amd64", "manifest"), strict=True):
        assert isinstance(problem, RegistryError)
        assert re.search(f"{registry.name}/a/b:{name}.*{why}", str(problem))
    registry.token = "another"
    with pytest.raises(RegistryError, match="401"):
        registries.ask(parse(f"{registry.name}/a/b:v1"), {"amd64"})
    with pytest.raises(RegistryError, match=r"127.0.0.1:1/"):
        registries.ask(parse("127.0.0.1:1/a/b:v1"), {"amd64"})


def test_a_digest_is_held_to(registry: Registry) -> None:
    digest = registry.image("a/b", "v1", 1)
    registry.manifests[f"a/b:{digest}"] = b'{"layers": [], "config": {"size": 1}}'
    with pytest.raises(RegistryError, match="with sha256:"):
        registries.ask(parse(f"{registry.name}/a/b:v1@{digest}"), {"amd64"})
