"""CINC's pin is refreshed. Its service is played by a real HTTP server, in the form that it is known to have:
tests do not reach the one of its makers."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from web import Answer, pages

from infra.catalogue.tables import FOLDER
from infra.drive.client_pin import refresh
from infra.errors import DriveError

PACKAGES = {"amd64": b"for amd64", "arm64": b"for arm64"}


@dataclass
class Makers:
    """The service, and the packages that it tells of."""

    url: str = ""
    packages: dict[str, bytes] = field(default_factory=lambda: dict(PACKAGES))
    sums: dict[str, str] = field(
        default_factory=lambda: {name: hashlib.sha256(data).hexdigest() for name, data in PACKAGES.items()}
    )
    versions: dict[str, str] = field(default_factory=lambda: dict.fromkeys(PACKAGES, "18.99.1"))

    def page(self, path: str, _: Mapping[str, str]) -> Answer:
        asked = urlsplit(path)
        if asked.path != "/metadata":
            return Answer(200, self.packages[asked.path.rpartition("_")[2].removesuffix(".deb")])
        query = {key: values[0] for key, values in parse_qs(asked.query).items()}
        assert query.items() >= {"p": "ubuntu", "pv": "22.04", "v": "18"}.items()
        architecture = {"x86_64": "amd64", "aarch64": "arm64"}[query["m"]]
        version = self.versions[architecture]
        address = f"{self.url}/cinc/{version}/ubuntu/22.04/cinc_{version}-1_{architecture}.deb"
        text = f"sha1\tx\nsha256\t{self.sums[architecture]}\nurl\t{address}\nversion\t{version}\n"
        return Answer(200, text.encode())


@pytest.fixture
def makers() -> Iterator[Makers]:
    makers = Makers()
    with pages(makers.page) as port:
        makers.url = f"http://127.0.0.1:{port}"
        yield makers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(FOLDER / "software.json", tmp_path / "software.json")
    return tmp_path


def test_the_row_is_what_the_makers_publish_and_the_others_stay(makers: Makers, folder: Path) -> None:
    heard: list[str] = []
    refresh("18", service=f"{makers.url}/metadata", folder=folder, said=heard.append)
    before = (FOLDER / "software.json").read_text().splitlines()
    after = (folder / "software.json").read_text().splitlines()
    assert [line for line in after if not line.startswith('"cinc"')] == [
        line for line in before if not line.startswith('"cinc"')
    ]
    row = json.loads((folder / "software.json").read_text())["cinc"]
    assert row["version"] == "18.99.1"
    assert row["sha256"] == makers.sums
    assert row["url"] == f"{makers.url}/cinc/{{version}}/ubuntu/22.04/cinc_{{version}}-1_%{{arch}}.deb"
    assert len(heard) == 2


@pytest.mark.parametrize("broken", ["package", "sum", "version", "service"])
def test_what_does_not_agree_changes_nothing(makers: Makers, folder: Path, broken: str) -> None:
    if broken == "package":
        makers.packages["arm64"] = b"another"
    elif broken == "sum":
        makers.sums["amd64"] = ""
    elif broken == "version":
        makers.versions["arm64"] = "18.99.0"
    service = "http://127.0.0.1:9/metadata" if broken == "service" else f"{makers.url}/metadata"
    with pytest.raises(DriveError):
        refresh("18", service=service, folder=folder, said=lambda _: None)
    assert (folder / "software.json").read_text() == (FOLDER / "software.json").read_text()
