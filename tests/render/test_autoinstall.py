"""Seeds of physical machines: the installer's forms, nobody's password, and no disk erased by guess."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml
from cookbooks.kitchen import COOKBOOKS
from golden_clusters import golden
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from render.tools import needs, run, write
from strategies.reading import read
from strategies.specs import Plain, specs

from infra.model import Cluster
from infra.model.places import PhysicalDisk, PhysicalNode
from infra.render.autoinstall import render
from infra.render.autoinstall.seeds import quoted
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

FORMS = yaml.safe_load((Path(__file__).parents[1] / "data" / "autoinstall.yaml").read_text(encoding="utf-8"))

WRITABLE: Final = st.characters(codec="utf-8", exclude_categories=["Cs"])


def with_node(cluster: Cluster, name: str, **changes: Any) -> Cluster:
    """The same with another node of that name."""
    sites = tuple(
        replace(
            site, nodes=tuple(replace(node, **changes) if node.name == name else node for node in site.nodes)
        )
        for site in cluster.sites
    )
    return replace(cluster, sites=sites)


def seed(files: Mapping[str, str], node: str) -> dict[str, Any]:
    [text] = [text for path, text in files.items() if path.endswith(f"/{node}/user-data")]
    assert text.startswith("#cloud-config\n")
    document = yaml.safe_load(text)
    assert list(document) == ["autoinstall"]
    return dict(document["autoinstall"])


def seeds(cluster: Cluster) -> Iterator[tuple[PhysicalNode, dict[str, Any], Mapping[str, str]]]:
    files = render(cluster)
    for site in cluster.sites:
        for node in site.nodes:
            if site.autoinstall and node.mac is not None:
                own = f"{site.name}/{node.name}/"
                yield node, seed(files, node.name), {
                    path.removeprefix(own): text for path, text in files.items() if path.startswith(own)
                }  # fmt: skip


def check(cluster: Cluster) -> int:
    """Hold each seed against the forms; how many there were."""
    count = 0
    instances = set()
    for node, found, own in seeds(cluster):
        jsonschema.validate(found, FORMS)
        config = yaml.safe_load(own["network-config"])
        assert config == found["network"]
        [lan] = config["ethernets"].values()
        assert lan["match"]["macaddress"] == node.mac
        assert IPv4Interface(lan["addresses"][0]).ip == node.address
        assert lan["routes"] == [{"to": "default", "via": str(node.router)}]
        assert node.router in IPv4Interface(lan["addresses"][0]).network
        meta = yaml.safe_load(own["meta-data"])
        assert meta["local-hostname"] == found["user-data"]["hostname"] == node.name
        instances.add(meta["instance-id"])
        assert set(own) == {"user-data", "meta-data", "network-config"}
        count += 1
    assert len(instances) == count
    return count


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs())
def test_seeds_of_any_spec_have_it(spec: Plain) -> None:
    for site in spec["sites"].values():
        if site["kind"] == "physical":
            site["autoinstall"] = True
    cluster, _ = resolve(read(spec).spec, Lock(), "lab")
    wanted = sum(node.mac is not None for site in cluster.sites for node in site.nodes)
    assert check(cluster) == wanted


def test_a_machine_is_found_by_its_mac_or_not_at_all() -> None:
    files = render(with_node(golden("research"), "titan-a01", mac=None))
    assert not any("titan-a01" in path for path in files)
    assert "titan-a01" not in files["rack-a/dnsmasq.conf"]
    assert "rack-a/mac-0cc47a0a000c.ipxe" in files


@pytest.mark.parametrize(
    ("device", "match"),
    [
        ("/dev/sda", {"path": "/dev/sda"}),
        ("/dev/disk/by-id/ata-Samsung_SSD_860_EVO_S3Z2", {"serial": "Samsung_SSD_860_EVO_S3Z2"}),
        ("/dev/disk/by-id/nvme-CT1000P5SSD8_21042D", {"serial": "CT1000P5SSD8_21042D"}),
        ("/dev/disk/by-id/nvme-eui.0025385b21404321", {"path": "/dev/disk/by-id/nvme-eui.0025385b21404321"}),
        ("/dev/disk/by-id/ata-odd[1]*", {"serial": "odd[[]1][*]"}),
    ],
)
def test_the_system_s_disk_is_the_one_that_was_named(device: str, match: dict[str, str]) -> None:
    disks = (PhysicalDisk("/dev/sdz", 1, "nfs"), PhysicalDisk(device, 1, "system"))
    found = seed(render(with_node(golden("research"), "titan-a01", disks=disks)), "titan-a01")
    assert found["storage"]["layout"] == {"name": "direct", "match": match}
    assert "interactive-sections" not in found


@pytest.mark.parametrize("disks", [(), (PhysicalDisk("/dev/sda", 1, "nfs"),)])
def test_without_a_system_disk_somebody_is_asked(disks: tuple[PhysicalDisk, ...]) -> None:
    found = seed(render(with_node(golden("research"), "titan-a01", disks=disks)), "titan-a01")
    assert found["interactive-sections"] == ["storage"]
    assert "layout" not in found["storage"]


def test_jumbo_frames_are_set_where_the_lan_has_them() -> None:
    cluster = golden("research")
    jumbo = replace(cluster, sites=tuple(replace(site, mtu=9000) for site in cluster.sites))
    assert check(jumbo) == check(cluster)
    for each, size in ((cluster, None), (jumbo, 9000)):
        for _, found, _ in seeds(each):
            [lan] = found["network"]["ethernets"].values()
            assert lan.get("mtu") == size


@needs("apt", "apt-config")
def test_apt_waits_for_its_locks_from_the_first_boot_on(tmp_path: Path) -> None:
    """cloud-init's ``write_files`` precedes all that uses APT but ``bootcmd``; `base` has the same file."""
    _, found, _ = next(seeds(golden("research")))
    config = found["user-data"]
    assert not {"bootcmd", "apt", "packages", "package_update", "package_upgrade"} & {*config}
    [ours] = (each for each in config["write_files"] if each["path"].startswith("/etc/apt/apt.conf.d/"))
    cookbook = COOKBOOKS / "base"
    assert ours["path"] in (cookbook / "recipes/packages.rb").read_text()
    for text in (ours["content"], (cookbook / "files/apt-lock.conf").read_text()):
        (tmp_path / "apt.conf").write_text(text)
        read = run(
            "apt-config", "--config-file", tmp_path / "apt.conf", "shell", "seconds", "DPkg::Lock::Timeout"
        )
        assert read == "seconds='600'\n"


def test_cloud_init_leaves_the_hosts_alone() -> None:
    for _, found, _ in seeds(golden("research")):
        assert found["user-data"]["manage_etc_hosts"] is False


@needs("dnsmasq-base", "dnsmasq")
def test_dnsmasq_finds_nothing_wrong(tmp_path: Path) -> None:
    write(tmp_path, render(golden("research")))
    run("dnsmasq", "--test", f"--conf-file={tmp_path}/rack-a/dnsmasq.conf")


@given(
    st.text(WRITABLE) | st.lists(st.text(WRITABLE)) | st.dictionaries(st.text(WRITABLE), st.text(WRITABLE))
)
def test_a_quoted_value_is_what_it_was(value: Any) -> None:
    text = quoted(value)
    assert "\n" not in text
    assert json.loads(text) == value
    assert yaml.safe_load(f"key: {text}\n") == {"key": value}
