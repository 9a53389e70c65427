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


def test_version_2_without_gpus(tool: Tool, render_erb: RenderErb, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("registry", "mirrors", "server"),
    [
        ("docker.io", ["https://b.example.org", "http://a.example.org:5000"], "https://registry-1.docker.io"),
        ("_default", ["https://m.test"], None),  # a mirror for all names no server
    ],
)
def test_mirrors_are_asked_in_order_and_the_registry_last(
    ask: Ask, render_erb: RenderErb, registry: str, mirrors: list[str], server: str | None
) -> None:
    variables = {
        "server": ask("container_runtime", "Causeway::Containerd.server(name)", name=registry),
        "mirrors": mirrors,
        "ca": "/etc/ssl/mirror.pem",
    }
    hosts = tomllib.loads(render_erb("container_runtime", "hosts.toml.erb", variables=variables))
    assert hosts.get("server") == server
    assert list(hosts["host"]) == mirrors
    assert all("push" not in each["capabilities"] for each in hosts["host"].values())
    assert all(each["ca"] == "/etc/ssl/mirror.pem" for each in hosts["host"].values())


def test_what_containerd_says_of_itself(ask: Ask, tool: Tool) -> None:
    versions = {
        "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3": ["1.6.20", 2],
        "containerd github.com/containerd/containerd v1.7.28 b98a3aace656": ["1.7.28", 2],
        "containerd github.com/containerd/containerd/v2 v2.0.0 207ad711eabd": ["2.0.0", 3],
        "containerd containerd.io v2.3.6 0123456789ab": ["2.3.6", 3],
    }
    read = """printed.map do |text|
        version = Causeway::Containerd.version_in(text)
        [version, Causeway::Containerd.config_version(version)]
    end"""
    assert ask("container_runtime", read, printed=[*versions]) == [*versions.values()]
    installed = run(tool("containerd", "containerd"), "--version")
    [[version, _]] = ask("container_runtime", read, printed=[installed])
    assert version in installed


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("pin('2.1.4')", "2.1.4-*"),  # not 2.1.40
        ("pin('2.1')", "2.1.*"),  # not 2.10
        # containerd 1 ends with Kubernetes 1.35.
        ("outlived?('1.7.28', '1.35')", False),
        ("outlived?('1.7.28', '1.36')", True),
        ("outlived?('2.0.0', '1.36')", False),
        ("outlived?('1.6.20', '1.40')", True),
    ],
)
def test_what_is_known_of_versions(ask: Ask, asked: str, expected: str | bool) -> None:
    assert ask("container_runtime", f"Causeway::Containerd.{asked}") == expected


def test_each_supported_minor_has_a_pause_image(ask: Ask) -> None:
    image = "minors.map { |minor| Causeway::Containerd.sandbox_image(minor) }"
    images = ask("container_runtime", image, minors=SUPPORTED)
    assert [each for each in images if not re.fullmatch(r"registry\.k8s\.io/pause:3\.10\.\d+", each)] == []


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
