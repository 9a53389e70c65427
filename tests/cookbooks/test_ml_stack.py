"""ml_stack: wheels by card, builds of an environment, what shells and units get.

Miniforge and PyTorch's wheels can't be had everywhere; pip's own parser reads the requirements here.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from cookbooks.kitchen import COOKBOOKS, RenderErb, Tool, run
from packaging.requirements import Requirement

from infra import catalogue
from infra.catalogue.gpus import ARCHITECTURES

STACK = COOKBOOKS / "ml_stack"
PINS = {
    "numpy": "2.5.5",
    "tensorflow": "2.21.0",
    "torch": "2.14.1",
    "torchvision": "0.29.2",
    "opencv": "4.14.0.94",
    "tensorboard": "2.21.0",
}


def ruby(tool: Tool, library: str, expression: str, **given: Any) -> Any:
    """What a Ruby expression over a library gives; ``given`` is at hand as ``given['name']``."""
    script = (
        f"require 'json'; require '{STACK}/libraries/{library}'; given = JSON.parse($stdin.read); "
        f"begin; puts JSON.generate([{expression}]); rescue ArgumentError => e; "
        "puts JSON.generate([{'refused' => e.message}]); end"
    )
    return json.loads(run(tool("ruby", "ruby"), "-e", script, stdin=json.dumps(given)))[0]


def requirements(
    tool: Tool, driver: int | None, family: str | None, pins: Mapping[str, str] = PINS
) -> dict[str, Requirement]:
    """Name → what pip is asked for on a machine."""
    lines = ruby(
        tool,
        "wheels.rb",
        "(versions = Causeway::Wheels.versions(given['pins'], given['family']); "
        "family = given['family']; "
        "build = Causeway::Wheels.build(driver: given['driver'], family: family, torch: versions['torch']); "
        "Causeway::Wheels.requirements(given['packages'], versions, build: build, family: family))",
        pins=dict(pins),
        packages={name: name for name in pins},
        driver=driver,
        family=family,
    )
    assert isinstance(lines, list), lines
    return {(found := Requirement(line)).name: found for line in lines}


@pytest.mark.parametrize(
    ("driver", "family", "torch", "cuda_for_tensorflow"),
    [
        (None, None, "2.14.1+cpu", False),
        (470, "kepler", "2.3.1+cu118", False),
        (580, "maxwell", "2.14.1+cu126", False),
        (580, "pascal", "2.14.1+cu126", True),
        (535, "volta", "2.14.1+cu126", True),
        (535, "hopper", "2.14.1+cu126", True),
        (580, "blackwell", "2.14.1+cu130", False),
        (580, None, "2.14.1+cu126", True),
    ],
)
def test_wheels_fit_cards(
    tool: Tool, driver: int | None, family: str | None, torch: str, cuda_for_tensorflow: bool
) -> None:
    asked = requirements(tool, driver, family)
    assert str(asked["torch"].specifier) == f"=={torch}"
    assert str(asked["torchvision"].specifier).endswith("+" + torch.split("+")[1])
    assert asked["tensorflow"].extras == ({"and-cuda"} if cuda_for_tensorflow else set())


def test_kepler_gets_what_goes_together(tool: Tool) -> None:
    asked = {name: str(each.specifier) for name, each in requirements(tool, 470, "kepler").items()}
    assert asked == {
        "numpy": "==1.26.4",
        "tensorflow": "==2.21.0",
        "torch": "==2.3.1+cu118",
        "torchvision": "==0.18.1+cu118",
        "opencv": "==4.11.0.86",
        "tensorboard": "==2.21.0",
    }


def test_a_pin_older_than_the_newest_is_kept(tool: Tool) -> None:
    asked = requirements(tool, 470, "kepler", PINS | {"torch": "2.0.1", "torchvision": "0.15.2"})
    assert str(asked["torch"].specifier) == "==2.0.1+cu118"


def test_after_cuda_12_6(tool: Tool) -> None:
    """PyTorch 2.15 has no cu126: old cards stay with 2.14, newer ones need driver 580."""
    pins = PINS | {"torch": "2.15.0", "torchvision": "0.30.0"}
    assert str(requirements(tool, 580, "pascal", pins)["torch"].specifier) == "==2.14.1+cu126"
    assert str(requirements(tool, 580, "ampere", pins)["torch"].specifier) == "==2.15.0+cu130"


@pytest.mark.parametrize(("driver", "family"), [(470, "pascal"), (570, "blackwell")])
def test_a_driver_too_old_is_refused(tool: Tool, driver: int, family: str) -> None:
    given = {"driver": driver, "family": family}
    build = "Causeway::Wheels.build(driver: given['driver'], family: given['family'], torch: '2.14.1')"
    told = ruby(tool, "wheels.rb", build, **given)
    assert "or later, not" in told["refused"]


def test_every_architecture_of_the_catalogue_is_known(tool: Tool) -> None:
    known = ruby(tool, "wheels.rb", "Causeway::Wheels::FAMILIES.keys")
    assert set(known) == set(ARCHITECTURES)


# Miniforge


PIN = {"url": "https://mirror.test/Miniforge3-%{machine}.sh", "sha256": {"amd64": "a" * 64}}


def test_the_installer_is_for_the_machine(tool: Tool) -> None:
    found = ruby(tool, "miniforge.rb", "Causeway::Miniforge.installer(given['pin'], 'x86_64')", pin=PIN)
    assert found == ["https://mirror.test/Miniforge3-x86_64.sh", "a" * 64]


@pytest.mark.parametrize(
    "pin", [PIN | {"sha256": {"arm64": "a" * 64}}, PIN | {"sha256": {}}, None, {"version": "1"}]
)
def test_without_a_checksum_nothing_is_installed(tool: Tool, pin: Mapping[str, Any] | None) -> None:
    found = ruby(tool, "miniforge.rb", "Causeway::Miniforge.installer(given['pin'], 'x86_64')", pin=pin)
    assert "miniforge" in found["refused"]


def test_the_catalogue_s_pin_is_one(tool: Tool) -> None:
    written = json.loads((Path(catalogue.__file__).parent / "software.json").read_text())["miniforge"]
    pin = written | {"url": written["url"].replace("{version}", written["version"])}
    for machine, architecture in (("x86_64", "amd64"), ("aarch64", "arm64")):
        url, checksum = ruby(
            tool, "miniforge.rb", f"Causeway::Miniforge.installer(given['pin'], '{machine}')", pin=pin
        )
        assert url.endswith(f"Miniforge3-{written['version']}-Linux-{machine}.sh")
        assert checksum == written["sha256"][architecture]


# Builds


def test_the_file_is_one_of_conda_s(tool: Tool) -> None:
    text = ruby(
        tool,
        "builds.rb",
        "Causeway::Builds.file('ml', ['conda-forge'], '3.12', given['requirements'], given['indexes'])",
        requirements=["numpy==2.5.5"],
        indexes=["https://pypi.test/simple", "https://wheels.test/cu126"],
    )
    asked = yaml.safe_load(text)
    assert asked["dependencies"][:2] == ["python=3.12", "pip"]
    assert asked["dependencies"][2]["pip"] == [
        "--index-url https://pypi.test/simple",
        "--extra-index-url https://wheels.test/cu126",
        "numpy==2.5.5",
    ]


def test_the_content_names_the_build(tool: Tool, tmp_path: Path) -> None:
    builds = f"Causeway::Builds.new('{tmp_path}', 'ml', '{tmp_path}/link')"
    same, again, other = ruby(tool, "builds.rb", f"%w(a a b).map {{ |each| {builds}.prefix(each) }}")
    assert same == again != other
    assert Path(same).parent == tmp_path


def test_former_builds_go_but_the_newest(tool: Tool, tmp_path: Path) -> None:
    def build(name: str, age: int, complete: bool = True) -> str:
        folder = tmp_path / name
        folder.mkdir()
        if complete:
            (folder / ".complete").touch()
            os.utime(folder / ".complete", (1_700_000_000 - age,) * 2)
        return str(folder)

    current = build("ml-000000000001", 50)
    build("ml-000000000002", 10)
    older = build("ml-000000000003", 20)
    cut_off = build("ml-000000000004", 0, complete=False)
    build("ml-2-000000000005", 99)  # of the environment `ml-2`
    build("mlx-000000000006", 99)
    (tmp_path / "link").symlink_to(current)
    builds = f"Causeway::Builds.new('{tmp_path}', 'ml', '{tmp_path}/link')"
    assert sorted(ruby(tool, "builds.rb", f"{builds}.superfluous(1)")) == sorted([cut_off, older])


# Shells and units


def profile(render_erb: RenderErb, tmp_path: Path, environment: str | None) -> Path:
    conda = tmp_path / "conda"
    (conda / "etc/profile.d").mkdir(parents=True)
    (conda / "etc/profile.d/conda.sh").write_text('conda() { echo "conda $*"; }\n')
    (conda / "envs/ml/bin").mkdir(parents=True)
    file = tmp_path / "ml_stack.sh"
    variables = {"conda": str(conda), "environment": environment and f"{conda}/{environment}"}
    file.write_text(render_erb("ml_stack", "profile.sh.erb", variables=variables))
    return file


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_conda_is_there_in_a_login_shell(
    render_erb: RenderErb, tool: Tool, tmp_path: Path, shell: str
) -> None:
    file = profile(render_erb, tmp_path, None)
    said = run(tool(shell, shell), "-eu", "-c", f'PATH=/usr/bin; . {file}; conda activate ml; echo "$PATH"')
    assert said.splitlines() == ["conda activate ml", "/usr/bin"]


def test_a_login_shell_can_begin_in_the_environment(
    render_erb: RenderErb, tool: Tool, tmp_path: Path
) -> None:
    file = profile(render_erb, tmp_path, "envs/ml")
    assert run(tool("bash", "bash"), "-c", f'PATH=/usr/bin; . {file}; echo "$PATH"').strip() == (
        f"{tmp_path}/conda/envs/ml/bin:/usr/bin"
    )


def test_conda_s_settings(render_erb: RenderErb) -> None:
    variables = {"conda": "/opt/conda", "channels": ["conda-forge"], "channel_alias": "https://mirror.test"}
    settings = yaml.safe_load(render_erb("ml_stack", "condarc.erb", variables=variables))
    assert settings["channels"] == ["conda-forge"]
    assert settings["channel_alias"] == "https://mirror.test"
    assert settings["envs_dirs"] == ["~/.conda/envs", "/opt/conda/envs"]


@pytest.mark.parametrize("unit", ["tensorboard@.service", "jupyterlab.service"])
def test_units_are_units(render_erb: RenderErb, tool: Tool, tmp_path: Path, unit: str) -> None:
    analyze = tool("systemd-analyze", "systemd")
    program = tmp_path / "env/bin" / ("tensorboard" if "tensorboard" in unit else "jupyter")
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file = tmp_path / unit.replace("@", "@runs")
    file.write_text(render_erb("ml_stack", f"{unit}.erb", variables={"environment": str(tmp_path / "env")}))
    ran = subprocess.run([analyze, "verify", "--man=no", file], capture_output=True, text=True, check=False)
    assert "Unknown" not in ran.stderr
    assert "not executable" not in ran.stderr
    assert "127.0.0.1" in file.read_text()
