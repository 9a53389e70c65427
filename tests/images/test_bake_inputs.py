"""What goes into an image, its hash, and what Packer says."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from images.bake_environment import ROOT, SPEC

from infra.drive.images import inputs, packer
from infra.drive.images.packer import phase_of
from infra.errors import DriveError
from infra.files import Files
from infra.load import load
from infra.render import render
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    spec = tmp_path_factory.mktemp("spec") / "tiny.yaml"
    spec.write_text(SPEC)
    return render(resolve(load(spec).spec, Lock(), "tiny")[0])


@pytest.fixture
def cookbooks(tmp_path: Path) -> Path:
    folder = tmp_path / "cookbooks"
    for name in ("base", "gpu"):
        (folder / name / "recipes").mkdir(parents=True)
        (folder / name / "spec").mkdir()
        (folder / name / "metadata.rb").write_text(f"name '{name}'\nversion '0.1.0'\n")
        (folder / name / "recipes" / "default.rb").write_text("# frozen_string_literal: true\n")
        (folder / name / "spec" / "default_spec.rb").write_text("describe 'x'\n")
    return folder


def digest(files: Files, cookbooks: Path, source: str = "ami-1") -> str:
    members = inputs.contents(files, "cpu", cookbooks, ROOT / "packer")
    packed = inputs.archive(members)
    return inputs.gather(files, "cpu", source, members, packed, ROOT / "packer" / "scripts").digest


def test_the_same_inputs_are_the_same_archive(files: Files, cookbooks: Path) -> None:
    members = inputs.contents(files, "cpu", cookbooks, ROOT / "packer")
    packed = inputs.archive(members)
    assert inputs.archive(dict(reversed(members.items()))) == packed
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        rows = {member.name: member for member in tar}
    assert rows["image/files/usr/local/lib/causeway/boot"].mode == 0o755
    assert {row.mtime for row in rows.values()} == {0}
    assert "chef/cookbooks/base/recipes/default.rb" in rows
    assert not [name for name in rows if "/spec/" in name], "tests of cookbooks stay at home"
    assert not [name for name in rows if name.startswith("chef/nodes/")], (
        "other machines are not its business"
    )


def test_whatever_goes_in_changes_the_hash(files: Files, cookbooks: Path) -> None:
    first = digest(files, cookbooks)
    assert digest(files, cookbooks) == first
    assert digest(files, cookbooks, source="ami-2") != first
    role = next(path for path in files if path.startswith("chef/roles/"))
    assert digest({**files, role: files[role] + " "}, cookbooks) != first
    template = "packer/cpu/image.pkr.hcl"
    assert digest({**files, template: files[template] + "\n"}, cookbooks) != first
    recipe = cookbooks / "gpu" / "recipes" / "default.rb"
    recipe.write_text("package 'x'\n")
    assert digest(files, cookbooks) != first


def test_where_it_is_made_does_not(files: Files, cookbooks: Path) -> None:
    name = "packer/cpu/image.pkrvars.json"
    elsewhere = files[name].replace('"region": "us-west-2"', '"region": "eu-west-1"')
    assert elsewhere != files[name]
    assert digest({**files, name: elsewhere}, cookbooks) == digest(files, cookbooks)
    (cookbooks / "gpu" / "spec" / "default_spec.rb").write_text("describe 'y'\n")
    assert digest({**files, name: elsewhere}, cookbooks) == digest(files, cookbooks)


def test_versions_of_cookbooks(files: Files, cookbooks: Path) -> None:
    members = inputs.contents(files, "cpu", cookbooks, ROOT / "packer")
    assert inputs.versions(members) == {"base": "0.1.0", "gpu": "0.1.0"}


def test_an_image_without_roles_is_refused(files: Files, cookbooks: Path) -> None:
    with pytest.raises(DriveError, match="gpu"):
        inputs.contents(files, "gpu", cookbooks, ROOT / "packer")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "1605970000,,ui,say,==> x: Waiting for instance...",
            packer.Said("say", "==> x: Waiting for instance..."),
        ),
        ("1605970000,,ui,error,a%!(PACKER_COMMA) b\\nc\\r", packer.Said("error", "a, b\nc")),
        ("1605970000,x,artifact,0,id,r:ami-1", packer.Said("artifact", "0,id,r:ami-1")),
        ("panic: runtime error, at once", packer.Said("", "panic: runtime error, at once")),
    ],
)
def test_what_packer_says(line: str, said: packer.Said) -> None:
    assert packer.parse(line) == said


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("==> x: Launching a spot AWS instance...", "launching the build instance"),
        ("==> x: Provisioning with shell script: /a/packer/scripts/converge.sh", "running the cookbooks"),
        ("==> x: Creating AMI tiny-cpu-1 from instance i-1", "making the AMI"),
        ("==> x: Creating AMI tags", None),
        ("    x: ok: sshd takes its configuration", None),
    ],
)
def test_phases(line: str, phase: str | None) -> None:
    assert phase_of(line) == phase


def program(folder: Path, text: str) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    file = folder / "packer"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_which_packer(tmp_path: Path) -> None:
    with pytest.raises(DriveError, match=r"1\.6\.6"):
        packer.find({"PATH": str(tmp_path)})
    with pytest.raises(DriveError, match=r"1\.5\.1"):
        packer.find(program(tmp_path / "old", "echo Packer v1.5.1"))
    with pytest.raises(DriveError, match="HashiCorp"):
        packer.find(program(tmp_path / "cracklib", "echo 0 0"))
    new = packer.find(program(tmp_path / "new", "echo Packer v1.14.2"))
    assert (new.version, new.fetches_plugins) == ((1, 14, 2), True)
    assert not packer.find(program(tmp_path / "debian", "echo Packer v1.6.6")).fetches_plugins
