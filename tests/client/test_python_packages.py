"""``python:`` of a job: what is installed over an image, and what keeps its environment. The image is a
virtual environment, the index a folder, and uv is real."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from client.wheels import wheel

from causeway import packages
from causeway.errors import CausewayError
from causeway.packages import CONTENTS, check_name, find_uv, install_here, packages_of


@dataclass(frozen=True)
class World:
    """An image, an index, and the code of a job."""

    image: Path
    index: Path
    code: Path
    cache: Path

    def write(self, text: str, name: str = "requirements.txt") -> None:
        options = f"--no-index\n--find-links {self.index}\n" if name == "requirements.txt" else ""
        (self.code / name).write_text(options + text)

    def install(self, name: str = "requirements.txt", *, exactly: Sequence[str] = ()) -> Path:
        python = str(self.image / "bin/python3")
        return install_here(self.code, name, "0" * 64, self.cache, python=python, exactly=exactly)

    def contents(self) -> dict[str, Any]:
        file = self.code.parent / "image.json"
        subprocess.run(
            [self.image / "bin/python3", "-c", CONTENTS.read_text(), file], check=True, cwd=self.code
        )
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def key(self, name: str = "requirements.txt", digest: str = "", **settings: str) -> str:
        return packages_of(self.code, name, digest, settings, self.contents()).key


def versions(environment: Path, *names: str) -> list[str]:
    """As a program sees them: of the modules that it imports, which are those of their metadata."""
    text = "import sys, importlib as i, importlib.metadata as m\nfor name in sys.argv[1:]:\n"
    text += "    assert (version := i.import_module(name).version) == m.version(name)\n    print(version)"
    command = [str(environment / "bin/python"), "-c", text, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split()


def installed(environment: Path) -> set[str]:
    """What is in the environment itself."""
    return {path.name.split(".dist-info")[0] for path in environment.glob("lib/*/site-packages/*.dist-info")}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An image with torch 2.1+cu121, numpy 1.0 and six 1.0, and an index that has no torch at all."""
    base, index, code = tmp_path / "base", tmp_path / "index", tmp_path / "code"
    of_image = [
        wheel(base, "torch", "2.1+cu121", requires=["numpy<2", "six"], program="torchrun"),
        wheel(base, "numpy", "1.0"),
        wheel(base, "six", "1.0"),
    ]
    image = tmp_path / "image"
    subprocess.run(
        [find_uv(), "venv", "--quiet", "--no-project", "--python", sys.executable, image], check=True
    )
    quiet = ["--quiet", "--offline", "--no-deps", "--no-config", "--no-index"]
    subprocess.run(
        [find_uv(), "pip", "install", *quiet, "--python", image / "bin/python", *of_image], check=True
    )
    for name, version in (("numpy", "1.5"), ("numpy", "2.0"), ("six", "2.0")):
        wheel(index, name, version)
    wheel(index, "lightning", "1.0", requires=["torch>=2", "numpy"])
    code.mkdir()
    return World(image, index, code, tmp_path / "cache")


def test_what_the_image_has_is_not_installed_again(world: World) -> None:
    """Its torch is in no index: if it were looked for, this would fail."""
    world.write("lightning\ntorch\n")
    environment = world.install()
    assert installed(environment) == {"lightning-1.0"}
    assert versions(environment, "torch", "numpy", "lightning") == ["2.1+cu121", "1.0", "1.0"]


def test_what_conflicts_is_installed_over_it(world: World) -> None:
    world.write("lightning\nnumpy>=1.2\nsix==2.0\n")
    environment = world.install()
    # torch 2.1 wants numpy<2.
    assert installed(environment) == {"lightning-1.0", "numpy-1.5", "six-2.0"}
    assert versions(environment, "six", "numpy") == ["2.0", "1.5"]
    assert versions(world.image, "six", "numpy") == ["1.0", "1.0"], "the image is as it was"


def test_a_run_that_is_repeated_gets_the_versions_that_it_had(world: World) -> None:
    world.write("lightning\nnumpy>=1.2\n")
    before = packages.installed(world.install())
    assert before == ["lightning==1.0", "numpy==1.5"]
    wheel(world.index, "numpy", "1.6")
    again = world.install(exactly=before)
    assert packages.installed(again) == before
    world.write("lightning\nnumpy>=1.2 # resolved anew\n")
    assert packages.installed(world.install()) == ["lightning==1.0", "numpy==1.6"]
    assert packages.installed(world.install(exactly=before)) == before


def test_a_program_of_the_image_finds_what_was_installed(world: World) -> None:
    world.write("six==2.0\n")
    environment = world.install()
    done = subprocess.run([environment / "bin/torchrun"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(environment), "2.1+cu121"]


def test_a_hash_is_checked_of_what_is_installed_and_not_asked_of_the_image(world: World) -> None:
    digest = hashlib.sha256((world.index / "six-2.0-py3-none-any.whl").read_bytes()).hexdigest()
    world.write(f"six==2.0 --hash=sha256:{digest}\nnumpy==1.0 --hash=sha256:{'1' * 64}\n")
    assert installed(world.install()) == {"six-2.0"}
    world.write(f"six==2.0 --hash=sha256:{'2' * 64}\n")
    with pytest.raises(CausewayError, match=r"(?i)hash"):
        world.install()


def test_pyproject_and_the_versions_of_a_lock(world: World) -> None:
    settings = f'[tool.uv]\nno-index = true\nfind-links = ["{world.index}"]\n'
    world.write(
        '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.8"\n'
        f'dependencies = ["numpy>=1.2"]\n{settings}',
        "pyproject.toml",
    )
    assert installed(world.install("pyproject.toml")) == {"numpy-2.0"}
    subprocess.run(
        [find_uv(), "lock", "--quiet", "--offline", "--python", sys.executable], check=True, cwd=world.code
    )
    wheel(world.index, "numpy", "3.0")
    assert installed(world.install("uv.lock")) == {"numpy-2.0"}, "the lock's, and not the newest"


def test_it_is_installed_once(world: World) -> None:
    world.write("six==2.0\n")
    first = world.install()
    marked = next(first.glob("lib/*/site-packages/six.py"))
    marked.write_text("version = 'mine'\n")
    assert world.install() == first
    assert marked.read_text() == "version = 'mine'\n"


def test_one_that_was_cut_off_is_installed_afresh(world: World) -> None:
    world.write("six==2.0\n")
    first = world.install()
    (first / "installed").unlink()
    next(first.glob("lib/*/site-packages/six.py")).unlink()
    assert versions(world.install(), "six") == ["2.0"]


def test_an_environment_is_kept_by_what_it_depends_on(world: World) -> None:
    file = world.code / "requirements.txt"
    file.write_text("six==2.0\n")
    before = world.key()
    (world.code / "train.py").write_text("pass")
    assert world.key(digest="other code") == before
    assert world.key(UV_INDEX_URL="https://other.example") != before
    file.write_text("six==2.0\n-r more.txt\n")
    assert (with_more := world.key()) != before
    (world.code / "more.txt").write_text("numpy\n")
    assert world.key() != with_more
    file.write_text("six==2.0\n")
    assert world.key() == before
    other = wheel(world.code.parent / "base", "attrs", "1.0")
    command = [find_uv(), "pip", "install", "--quiet", "--offline", "--no-config", "--no-index", "--no-deps"]
    subprocess.run([*command, "--python", world.image / "bin/python", other], check=True)
    assert world.key() != before, "the image has another package"


@pytest.mark.parametrize(
    ("line", "is_local"),
    [
        ("-e .", True),
        ("./lib", True),
        ("mine @ file:///causeway/code/mine-1.0.whl", True),
        ("--find-links wheels", True),
        ("mine-1.0-py3-none-any.whl", True),
        ("six", False),
        ("six>=1; python_version > '3.8'  # see docs/packages.md", False),
        ("mine @ https://example.com/mine-1.0-py3-none-any.whl", False),
        ("--index-url https://pypi.example.com/simple/", False),
    ],
)
def test_where_files_of_the_code_are_named_the_code_counts(world: World, line: str, is_local: bool) -> None:
    (world.code / "requirements.txt").write_text(f"{line}\n")
    assert (world.key(digest="one") != world.key(digest="two")) is is_local


@pytest.mark.parametrize(
    ("name", "shipped"),
    [
        ("requirements.txt", ["train.py"]),
        ("environment.yaml", ["environment.yaml"]),
        ("uv.lock", ["uv.lock"]),
        ("../requirements.txt", ["requirements.txt"]),
    ],
)
def test_a_list_must_be_shipped(name: str, shipped: list[str]) -> None:
    assert [problem.field for problem in check_name(name, shipped)] == ["python"]
    assert check_name("sub/uv.lock", ["sub/uv.lock", "sub/pyproject.toml"]) == []


def test_packages_of_debian_with_versions_that_are_none_are_left_out(world: World) -> None:
    about = next(world.image.glob("lib/*/site-packages")) / "odd-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 0.1-unknown~deb\n")
    names: Mapping[str, str] = {each["name"]: each["version"] for each in world.contents()["packages"]}
    assert dict(names) == {"numpy": "1.0", "six": "1.0", "torch": "2.1+cu121"}
    world.write("six==2.0\n")
    assert installed(world.install()) == {"six-2.0"}
