"""Seeds of physical machines: the installer's forms, nobody's password, and no disk erased by guess."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
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
from infra.model.places import PhysicalDisk, PhysicalNode, SystemDisks
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
        # Its ID_SERIAL on Ubuntu 24.04 is CT1000P5SSD8_21042D_1.
        ("/dev/disk/by-id/nvme-CT1000P5SSD8_21042D", {"serial": "CT1000P5SSD8_21042D*"}),
        ("/dev/disk/by-path/pci-0000:00:1f.2-ata-1", {"id_path": "pci-0000:00:1f.2-ata-1"}),
        ("/dev/disk/by-id/nvme-eui.0025385b21404321", {"path": "/dev/disk/by-id/nvme-eui.0025385b21404321"}),
        ("/dev/disk/by-id/ata-odd[1]*", {"serial": "odd[[]1][*]"}),
    ],
)
def test_the_system_s_disk_is_the_one_that_was_named(device: str, match: dict[str, str]) -> None:
    disks = (PhysicalDisk("/dev/sdz", 1, "nfs"), PhysicalDisk(device, 1, "system"))
    found = seed(render(with_node(golden("research"), "titan-a01", disks=disks)), "titan-a01")
    assert found["storage"]["layout"] == {"name": "direct", "match": match}
    assert "interactive-sections" not in found


MIRROR: Final = (
    PhysicalDisk("/dev/disk/by-id/ata-A", 1, "system"),
    PhysicalDisk("/dev/sdz", 1, "scratch"),
    PhysicalDisk("/dev/disk/by-id/ata-B", 1, "system"),
)

LAYOUTS: Final = (
    SystemDisks(mirrored=True),
    SystemDisks(lvm=True),
    SystemDisks(mirrored=True, lvm=True),
    SystemDisks(mirrored=True, lvm=True, root_mib=204800),
)


def laid_out(system: SystemDisks) -> Cluster:
    return with_node(golden("research"), "titan-a01", disks=MIRROR, system=system)


def of_kind(actions: Iterable[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [action for action in actions if action["type"] == kind]


@pytest.mark.parametrize("system", LAYOUTS)
def test_raid_and_lvm_are_on_the_disks_that_were_named(system: SystemDisks) -> None:
    cluster = laid_out(system)
    check(cluster)
    found = seed(render(cluster), "titan-a01")
    actions = found["storage"]["config"]
    assert "layout" not in found["storage"]
    assert found["storage"]["swap"] == {"size": 0}

    serials = ["A", "B"] if system.mirrored else ["A"]
    disks = of_kind(actions, "disk")
    assert [disk["match"] for disk in disks] == [{"serial": serial} for serial in serials]
    seen: set[str] = set()
    for action in actions:
        named = (action.get(key, ()) for key in ("device", "volume", "volgroup", "devices"))
        assert {each for value in named for each in ([value] if isinstance(value, str) else value)} <= seen
        assert action["id"] not in seen
        seen.add(action["id"])

    # Each disk boots by itself: GRUB's place with BIOS, a formatted ESP with UEFI.
    for disk in disks:
        parts = [part for part in of_kind(actions, "partition") if part["device"] == disk["id"]]
        assert [part.get("flag") for part in parts] == ["bios_grub", "boot", None]
        assert [part.get("grub_device") for part in (disk, *parts)] == [True, None, True, None]
        formats = {each["volume"]: each["fstype"] for each in of_kind(actions, "format")}
        assert formats[parts[1]["id"]] == "fat32"

    below = [part["id"] for part in of_kind(actions, "partition") if part["size"] == -1]
    for raid in of_kind(actions, "raid"):
        assert raid["devices"] == below
        below = [raid["id"]]
    for group in of_kind(actions, "lvm_volgroup"):
        assert group["devices"] == below
        [volume] = of_kind(actions, "lvm_partition")
        assert volume["size"] == ("100%" if system.root_mib is None else "204800M")
        below = [volume["id"]]
    root, esp = of_kind(actions, "mount")
    assert root["path"] == "/"
    assert [each["volume"] for each in of_kind(actions, "format") if each["id"] == root["device"]] == below
    # With one disk gone, its ESP is missing, and the machine starts all the same.
    assert esp["path"] == "/boot/efi"
    assert "nofail" in esp["options"].split(",")


@pytest.mark.parametrize("firmware", ["uefi", "bios"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_early_command_leaves_grub_where_the_firmware_starts_it(
    firmware: str, wrapped: bool, tmp_path: Path
) -> None:
    """Curtin, without UEFI, runs grub-install on every action with ``grub_device``, an ESP too."""
    found = seed(render(laid_out(LAYOUTS[0])), "titan-a01")
    config = tmp_path / "autoinstall.yaml"
    config.write_text(yaml.safe_dump({"autoinstall": found} if wrapped else found))
    [command] = found["early-commands"]
    efi = tmp_path if firmware == "uefi" else tmp_path / "absent"
    command = command.replace("/autoinstall.yaml", str(config)).replace("/sys/firmware/efi", str(efi))
    run("sh", "-ec", command.replace("python3", sys.executable))
    left = yaml.safe_load(config.read_text())
    actions = (left["autoinstall"] if wrapped else left)["storage"]["config"]
    kinds = {action["type"] for action in actions if action.get("grub_device")}
    assert kinds == ({"disk", "partition"} if firmware == "uefi" else {"disk"})
    assert len(actions) == len(found["storage"]["config"])


@pytest.mark.parametrize("system", [SystemDisks(), *LAYOUTS])
def test_the_installer_s_own_schema_accepts_a_seed(system: SystemDisks) -> None:
    """``autoinstall-schema.json`` of canonical/subiquity, which leaves what is in ``storage`` to curtin."""
    folder = os.environ.get("SUBIQUITY_TREE")
    if folder is None:
        pytest.skip("SUBIQUITY_TREE names no source of Ubuntu's installer")
    schema = json.loads((Path(folder) / "autoinstall-schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(seed(render(laid_out(system)), "titan-a01"), schema)


@pytest.mark.parametrize("system", [SystemDisks(), *LAYOUTS])
@pytest.mark.parametrize("disks", [(), (PhysicalDisk("/dev/sda", 1, "nfs"),)])
def test_without_a_system_disk_somebody_is_asked(
    disks: tuple[PhysicalDisk, ...], system: SystemDisks
) -> None:
    cluster = with_node(golden("research"), "titan-a01", disks=disks, system=system)
    found = seed(render(cluster), "titan-a01")
    assert found["interactive-sections"] == ["storage"]
    assert found["storage"] == {"swap": {"size": 0}}


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
