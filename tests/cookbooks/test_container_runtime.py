"""containerd's configuration, read by containerd itself; what is known of its versions."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cookbooks.kitchen import COOKBOOKS, Ask, RenderErb, Tool, run

RELEASES = json.loads((COOKBOOKS.parent / "infra/catalogue/releases.json").read_text())
SUPPORTED = [minor for minor, each in RELEASES["kubernetes"].items() if each.get("supported")]

NVIDIA = {"nvidia": {"path": "/usr/bin/nvidia-container-runtime", "default": True}}


def variables(**other: Any) -> dict[str, Any]:
    return {
        "sandbox_image": "registry.k8s.io/pause:3.10.1",
        "runtimes": {},
        "default_runtime": "runc",
        "downloads": 5,
        "cni_bin_dir": "/opt/cni/bin",
        "cni_conf_dir": "/etc/cni/net.d",
        "registry_dir": "/etc/containerd/certs.d",
        "cdi": True,
        "several_bin_dirs": True,
        **other,
    }


def dumped(containerd: str, tmp_path: Path, text: str) -> dict[str, Any]:
    """The whole configuration as containerd understands it."""
    config = tmp_path / "config.toml"
    config.write_text(text)
    return tomllib.loads(run(containerd, "--config", config, "config", "dump"))


def test_containerd_reads_version_2(tool: Tool, render_erb: RenderErb, tmp_path: Path) -> None:
    text = render_erb(
        "container_runtime",
        "config-v2.toml.erb",
        variables=variables(runtimes=NVIDIA, default_runtime="nvidia"),
    )
    containerd = tool("containerd", "containerd")
    read = dumped(containerd, tmp_path, text)
    if " 1." not in run(containerd, "--version"):
        pytest.skip("containerd 2.x turns version 2 into version 3 when it reads it")
    cri = read["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == "registry.k8s.io/pause:3.10.1"
    assert cri["max_concurrent_downloads"] == 5
    assert cri["registry"]["config_path"] == "/etc/containerd/certs.d"
    assert cri["cni"]["bin_dir"] == "/opt/cni/bin"
    assert cri["containerd"]["default_runtime_name"] == "nvidia"
    runtimes = cri["containerd"]["runtimes"]
    assert all(each["options"]["SystemdCgroup"] is True for each in runtimes.values())
    assert runtimes["nvidia"]["options"]["BinaryName"] == "/usr/bin/nvidia-container-runtime"
    assert {each["runtime_type"] for each in runtimes.values()} == {"io.containerd.runc.v2"}


def test_version_2_without_cards(tool: Tool, render_erb: RenderErb, tmp_path: Path) -> None:
    text = render_erb("container_runtime", "config-v2.toml.erb", variables=variables(cdi=False))
    dumped(tool("containerd", "containerd"), tmp_path, text)
    cri = tomllib.loads(text)["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["containerd"]["default_runtime_name"] == "runc"
    assert set(cri["containerd"]["runtimes"]) == {"runc"}
    assert "enable_cdi" not in cri, "containerd 1.6 does not know it"


def test_version_3_has_the_same_in_its_own_tables(render_erb: RenderErb) -> None:
    text = render_erb(
        "container_runtime",
        "config-v3.toml.erb",
        variables=variables(runtimes=NVIDIA, default_runtime="nvidia"),
    )
    read = tomllib.loads(text)
    assert read["version"] == 3
    assert set(read["plugins"]) == {"io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"}
    images = read["plugins"]["io.containerd.cri.v1.images"]
    assert images["pinned_images"]["sandbox"] == "registry.k8s.io/pause:3.10.1"
    assert images["registry"]["config_path"] == "/etc/containerd/certs.d"
    runtime = read["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["containerd"]["default_runtime_name"] == "nvidia"
    assert all(each["options"]["SystemdCgroup"] for each in runtime["containerd"]["runtimes"].values())
    assert runtime["cni"]["bin_dirs"] == ["/opt/cni/bin"]


def test_bin_dirs_is_a_word_of_2_1(render_erb: RenderErb) -> None:
    text = render_erb("container_runtime", "config-v3.toml.erb", variables=variables(several_bin_dirs=False))
    cni = tomllib.loads(text)["plugins"]["io.containerd.cri.v1.runtime"]["cni"]
    assert cni == {"bin_dir": "/opt/cni/bin", "conf_dir": "/etc/cni/net.d"}


def test_mirrors_are_asked_in_order_and_the_registry_last(ask: Ask, render_erb: RenderErb) -> None:
    server = ask("container_runtime", "Causeway::Containerd.server(name)", name="docker.io")
    mirrors = ["https://b.example.org", "http://a.example.org:5000"]
    text = render_erb(
        "container_runtime",
        "hosts.toml.erb",
        variables={"server": server, "mirrors": mirrors, "ca": "/etc/ssl/mirror.pem"},
    )
    read = tomllib.loads(text)
    assert read["server"] == "https://registry-1.docker.io"
    assert list(read["host"]) == mirrors
    assert all("push" not in each["capabilities"] for each in read["host"].values())
    assert all(each["ca"] == "/etc/ssl/mirror.pem" for each in read["host"].values())


def test_a_mirror_for_all_names_no_server(ask: Ask, render_erb: RenderErb) -> None:
    server = ask("container_runtime", "Causeway::Containerd.server(name)", name="_default")
    assert server is None
    text = render_erb(
        "container_runtime",
        "hosts.toml.erb",
        variables={"server": server, "mirrors": ["https://m.test"], "ca": None},
    )
    assert set(tomllib.loads(text)) == {"host"}


@pytest.mark.parametrize(
    ("printed", "version", "config"),
    [
        ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3", "1.6.20", 2),
        ("containerd github.com/containerd/containerd v1.7.28 b98a3aace656", "1.7.28", 2),
        ("containerd github.com/containerd/containerd/v2 v2.0.0 207ad711eabd", "2.0.0", 3),
        ("containerd containerd.io v2.3.6 0123456789ab", "2.3.6", 3),
    ],
)
def test_what_containerd_says_of_itself(ask: Ask, printed: str, version: str, config: int) -> None:
    read = ask("container_runtime", "Causeway::Containerd.version_in(printed)", printed=printed)
    assert read == version
    assert ask("container_runtime", "Causeway::Containerd.config_version(v)", v=version) == config


def test_the_installed_one_is_understood(ask: Ask, tool: Tool) -> None:
    printed = run(tool("containerd", "containerd"), "--version")
    read = ask("container_runtime", "Causeway::Containerd.version_in(printed)", printed=printed)
    assert read in printed


@pytest.mark.parametrize(("version", "pin"), [("2.1.4", "2.1.4-*"), ("2.1", "2.1.*")])
def test_a_pin_does_not_take_longer_numbers(ask: Ask, version: str, pin: str) -> None:
    """2.1 is not 2.10, and 2.1.4 not 2.1.40."""
    assert ask("container_runtime", "Causeway::Containerd.pin(v)", v=version) == pin


@pytest.mark.parametrize("minor", SUPPORTED)
def test_each_supported_minor_has_a_pause_image(ask: Ask, minor: str) -> None:
    image = ask("container_runtime", "Causeway::Containerd.sandbox_image(minor)", minor=minor)
    assert re.fullmatch(r"registry\.k8s\.io/pause:3\.10\.\d+", image)


@pytest.mark.parametrize(
    ("version", "minor", "outlived"),
    [("1.7.28", "1.35", False), ("1.7.28", "1.36", True), ("2.0.0", "1.36", False), ("1.6.20", "1.40", True)],
)
def test_containerd_1_ends_with_kubernetes_1_35(ask: Ask, version: str, minor: str, outlived: bool) -> None:
    answer = ask(
        "container_runtime",
        "Causeway::Containerd.outlived?(version, minor)",
        version=version,
        minor=minor,
    )
    assert answer is outlived


def test_a_kernel_parameter_is_set_by_one_cookbook() -> None:
    """A key in two files has the value of the file that is read last, whichever is lower."""
    base = (COOKBOOKS / "base" / "attributes" / "default.rb").read_text()
    own = (COOKBOOKS / "container_runtime" / "attributes" / "default.rb").read_text()
    general = set(re.findall(r"\['sysctl'\]\['([a-z0-9_.]+)'\]", base))
    block = re.search(r"\['sysctls'\] = \{(.*?)\}", own, re.DOTALL)
    assert block is not None
    containers = set(re.findall(r"'([a-z0-9_.-]+)' =>", block[1]))
    assert general
    assert containers
    assert general & containers == set()
