"""ml_stack: wheels by GPU, builds of an environment, what shells and units get.

Miniforge and PyTorch's wheels can't be had everywhere; pip's own parser reads the requirements here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from cookbooks.kitchen import Ask, RenderErb, Tool, run
from packaging.requirements import Requirement

from infra import catalogue
from infra.catalogue.gpus import ARCHITECTURES

PINS = {
    "numpy": "2.5.5",
    "tensorflow": "2.21.0",
    "torch": "2.14.1",
    "torchvision": "0.29.2",
    "opencv": "4.14.0.94",
    "tensorboard": "2.21.0",
}


def requirements(
    ask: Ask, driver: int | None, family: str | None, pins: Mapping[str, str] = PINS
) -> dict[str, Requirement]:
    """Name → what pip is asked for on a machine."""
    lines = ask(
        "ml_stack/wheels",
        "versions = Causeway::Wheels.versions(pins, family)\n"
        "build = Causeway::Wheels.build(driver: driver, family: family, torch: versions['torch'])\n"
        "Causeway::Wheels.requirements(packages, versions, build: build, family: family)",
        pins=dict(pins), packages={name: name for name in pins}, driver=driver, family=family,
    )  # fmt: skip
    assert isinstance(lines, list), lines
    return {requirement.name: requirement for requirement in map(Requirement, lines)}


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
def test_wheels_fit_gpus(
    ask: Ask, driver: int | None, family: str | None, torch: str, cuda_for_tensorflow: bool
) -> None:
    asked = requirements(ask, driver, family)
    assert str(asked["torch"].specifier) == f"=={torch}"
    assert str(asked["torchvision"].specifier).endswith("+" + torch.split("+")[1])
    assert asked["tensorflow"].extras == ({"and-cuda"} if cuda_for_tensorflow else set())


def test_kepler_gets_what_goes_together(ask: Ask) -> None:
    asked = {name: str(each.specifier) for name, each in requirements(ask, 470, "kepler").items()}
    assert asked == {
        "numpy": "==1.26.4",
        "tensorflow": "==2.21.0",
        "torch": "==2.3.1+cu118",
        "torchvision": "==0.18.1+cu118",
        "opencv": "==4.11.0.86",
        "tensorboard": "==2.21.0",
    }


@pytest.mark.parametrize(
    ("driver", "family", "pin", "torch"),
    [
        (470, "kepler", "2.0.1", "2.0.1+cu118"),  # older than the newest that there is for it
        # PyTorch 2.15 has no cu126: old GPUs stay with 2.14, newer ones need driver 580.
        (580, "pascal", "2.15.0", "2.14.1+cu126"),
        (580, "ampere", "2.15.0", "2.15.0+cu130"),
    ],
)
def test_a_pin_is_kept_where_gpus_can(ask: Ask, driver: int, family: str, pin: str, torch: str) -> None:
    asked = requirements(ask, driver, family, PINS | {"torch": pin})
    assert str(asked["torch"].specifier) == f"=={torch}"


@pytest.mark.parametrize(("driver", "family"), [(470, "pascal"), (570, "blackwell")])
def test_a_driver_too_old_is_refused(ask: Ask, driver: int, family: str) -> None:
    build = "Causeway::Wheels.build(driver: driver, family: family, torch: '2.14.1')"
    assert str(driver) in ask("ml_stack/wheels", build, driver=driver, family=family)["raised"]


def test_every_architecture_of_the_catalogue_is_known(ask: Ask) -> None:
    assert set(ask("ml_stack/wheels", "Causeway::Wheels::FAMILIES.keys")) == set(ARCHITECTURES)


# Miniforge


INSTALLER = "Causeway::Miniforge.installer(pin, machine)"


@pytest.mark.parametrize("pin", [{"sha256": {"arm64": "a" * 64}}, {"sha256": {}}, None, {"version": "1"}])
def test_without_a_checksum_nothing_is_installed(ask: Ask, pin: dict[str, Any] | None) -> None:
    pin = pin and {"url": "https://mirror.test/Miniforge3-%{machine}.sh", **pin}
    refusal = ask("ml_stack/miniforge", INSTALLER, pin=pin, machine="x86_64")["raised"]
    assert "node['software']['miniforge']" in refusal


def test_the_catalogue_s_pin_is_one_for_each_machine(ask: Ask) -> None:
    written = json.loads((Path(catalogue.__file__).parent / "software.json").read_text())["miniforge"]
    pin = written | {"url": written["url"].replace("{version}", written["version"])}
    for machine, architecture in (("x86_64", "amd64"), ("aarch64", "arm64")):
        url, checksum = ask("ml_stack/miniforge", INSTALLER, pin=pin, machine=machine)
        assert url.endswith(f"Miniforge3-{written['version']}-Linux-{machine}.sh")
        assert checksum == written["sha256"][architecture]


# Builds


def test_the_file_is_one_of_conda_s(ask: Ask) -> None:
    text = ask(
        "ml_stack/builds",
        "Causeway::Builds.file('ml', ['conda-forge'], '3.12', requirements, indexes)",
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


def test_the_content_names_the_build(ask: Ask, tmp_path: Path) -> None:
    builds = f"Causeway::Builds.new('{tmp_path}', 'ml', '{tmp_path}/link')"
    same, again, other = ask("ml_stack/builds", f"%w(a a b).map {{ |each| {builds}.prefix(each) }}")
    assert same == again != other
    assert Path(same).parent == tmp_path


def test_former_builds_go_but_the_newest(ask: Ask, tmp_path: Path) -> None:
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
    assert sorted(ask("ml_stack/builds", f"{builds}.superfluous(1)")) == sorted([cut_off, older])


# Shells and units


def login_shell(tool: Tool, render_erb: RenderErb, root: Path, shell: str, environment: str | None) -> str:
    """What a login shell says; its PATH last."""
    conda = root / "conda"
    (conda / "etc/profile.d").mkdir(parents=True)
    (conda / "etc/profile.d/conda.sh").write_text('conda() { echo "conda:$2"; }\n')
    (conda / "envs/ml/bin").mkdir(parents=True)
    profile = root / "ml_stack.sh"
    variables = {"conda": str(conda), "environment": environment and f"{conda}/{environment}"}
    profile.write_text(render_erb("ml_stack", "profile.sh.erb", variables=variables))
    script = f'PATH=/usr/bin; . {profile}; conda activate ml; echo "$PATH"'
    return run(tool(shell, shell), "-eu", "-c", script)


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_conda_is_there_in_a_login_shell(
    render_erb: RenderErb, tool: Tool, tmp_path: Path, shell: str
) -> None:
    lines = login_shell(tool, render_erb, tmp_path, shell, None).splitlines()
    assert lines == ["conda:ml", "/usr/bin"]


def test_a_login_shell_can_begin_in_the_environment(
    render_erb: RenderErb, tool: Tool, tmp_path: Path
) -> None:
    path = login_shell(tool, render_erb, tmp_path, "bash", "envs/ml").splitlines()[-1]
    assert path == f"{tmp_path}/conda/envs/ml/bin:/usr/bin"


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
    output = run(analyze, "verify", "--man=no", file, ok=None)
    assert "Unknown" not in output
    assert "not executable" not in output
    assert "127.0.0.1" in file.read_text()
