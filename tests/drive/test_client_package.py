"""The package of the client that runs cookbooks, fetched from a real HTTP server, and checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from web import Answer, pages

from infra.drive.client import LICENSE_ID, package
from infra.errors import DriveError
from infra.model.software import Client

PACKAGE = b"a Debian package" * 100_000
GOOD = Answer(200, PACKAGE)


@dataclass
class Site:
    """A site that serves one answer, and what it was asked for."""

    url: str = ""
    answer: Answer = GOOD
    asked: list[str] = field(default_factory=list)

    def page(self, path: str, _: Mapping[str, str]) -> Answer:
        self.asked.append(path)
        return self.answer


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    with pages(site.page) as port:
        site.url = f"http://127.0.0.1:{port}"
        yield site


def cinc(site: Site) -> Client:
    sums = {"amd64": hashlib.sha256(PACKAGE).hexdigest()}
    return Client("cinc", "18.7.10", f"{site.url}/cinc_%{{arch}}_%{{machine}}.deb", sums, None)


def chef(site: Site) -> Client:
    sums = {"amd64": hashlib.sha256(PACKAGE).hexdigest()}
    return Client("chef", "18.11.21", f"{site.url}/chef?m=%{{machine}}&id=%{{license}}", sums, "accept")


def kept(build: Path) -> list[str]:
    return [path.name for path in (build / "state" / "client").iterdir()]


def test_a_package_is_fetched_once_and_kept_by_its_checksum(site: Site, tmp_path: Path) -> None:
    first = package(cinc(site), "amd64", tmp_path, {})
    assert first.read_bytes() == PACKAGE
    assert site.asked == ["/cinc_amd64_x86_64.deb"]
    site.answer = Answer(500)
    assert package(cinc(site), "amd64", tmp_path, {}) == first
    assert len(site.asked) == 1


def test_what_was_kept_and_then_damaged_is_fetched_again(site: Site, tmp_path: Path) -> None:
    first = package(cinc(site), "amd64", tmp_path, {})
    first.write_bytes(b"half")
    assert package(cinc(site), "amd64", tmp_path, {}).read_bytes() == PACKAGE


@pytest.mark.parametrize(
    "answer",
    [Answer(200, b"<html>Enter your licence</html>"), Answer(403, b"no"), Answer(200, PACKAGE[1:]), None],
)
def test_anything_else_is_refused_and_not_kept(site: Site, tmp_path: Path, answer: Answer | None) -> None:
    if answer:
        site.answer = answer
    else:
        site.url = "http://127.0.0.1:9"  # where nobody listens
    with pytest.raises(DriveError, match=f"{site.url}/cinc_amd64_x86_64.deb"):
        package(cinc(site), "amd64", tmp_path, {})
    assert kept(tmp_path) == []


def test_without_a_checksum_nothing_is_asked_for(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DriveError, match=r"software\.cinc\.sha256\.arm64"):
        package(cinc(site), "arm64", tmp_path, {})
    assert site.asked == []


def test_a_licence_id_is_the_users_and_shown_nowhere(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DriveError, match=LICENSE_ID):
        package(chef(site), "amd64", tmp_path, {})
    assert site.asked == []
    site.answer = Answer(403)
    with pytest.raises(DriveError) as raised:
        package(chef(site), "amd64", tmp_path, {LICENSE_ID: "secret-4711"})
    assert site.asked == ["/chef?m=x86_64&id=secret-4711"]
    assert "secret-4711" not in str(raised.value)
    site.answer = GOOD
    assert package(chef(site), "amd64", tmp_path, {LICENSE_ID: "secret-4711"}).read_bytes() == PACKAGE
