"""Cookbooks as a person runs them: a real CINC or Chef Infra Client, a machine with systemd, every role.

Twice each: what the second run changes, the first one left undone or the cookbook can't tell. In a virtual
machine rather than in a container: kernel settings, modules, XFRM interfaces and disks are the cookbooks'
business. For what no machine of a test reaches there are stand-ins (``machines/archive.py``). Skipped without
either (``machines/disk.py`` says how to name one); in software emulation it takes half an hour.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from client.wheels import wheel
from machines import archive, boot, disk
from machines.site import Site
from qemu import Unavailable, release

pytestmark = pytest.mark.timeout(5400)

JOIN = f"""\
token: abcdef.0123456789abcdef
ca_cert_hashes: ["sha256:{"0" * 64}"]
"""

ENCRYPTION = """\
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: []
"""

BEYOND_A_SPEC: Mapping[str, Any] = {
    "kubernetes": {"endpoint": "api.small.internal:6443"},
    "storage": {
        "sites": {
            "lab": {
                "mounts": [
                    {
                        "path": "/home",
                        "kind": "nfs",
                        "server": "gateway.small.internal",
                        "export": "/srv/home",
                    },
                    {
                        "path": "/data",
                        "kind": "efs",
                        "file_system": "fs-0123",
                        "region": "us-west-2",
                        "tls": True,
                    },
                    {
                        "path": "/results",
                        "kind": "s3",
                        "bucket": "results",
                        "region": "us-west-2",
                        "prefix": "",
                    },
                ]
            }
        }
    },
}
"""A site in racks and a region in one spec, as machines in the racks see it."""

AS_A_CLUSTER_HAS_IT: Mapping[str, Any] = {
    "gpu": {
        "dcgm": {"exporter": False},
        "container_toolkit": {"devices": "mounts"},
        "health": {"taint": True},
    }
}
"""What the role ``gpu-worker`` says where the add-ons for GPUs are on."""

NODE = "recipe[container_runtime],recipe[kubernetes::worker]"
"""What roles have where there is a cluster, which the site's spec has not."""


@pytest.fixture(scope="module")
def real_disk() -> Path:
    """A disk with a real chef-client."""
    chef = disk.Chef.here()
    if chef is None:
        pytest.skip(
            "neither CINC nor a Chef Infra Client whose licence is accepted: CHEF_CLIENT, "
            "CHEF_CLIENT_TREE and CHEF_LICENSE name one"
        )
    for tool, package in (("gpg", "gnupg"), ("dpkg-deb", "dpkg")):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {package}")
    try:
        boot.kernel()
        return disk.disk(chef)
    except Unavailable as fault:
        pytest.skip(str(fault))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, real_disk: Path) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    client = disk.Chef.here()
    assert client is not None
    site = Site(folder / "project", key, client)
    yield site
    site.down()


@pytest.fixture(scope="module")
def attributes(tmp_path_factory: pytest.TempPathFactory, real_disk: Path) -> Iterator[Mapping[str, Any]]:
    """A node's, by which its packages come from an archive of stand-ins."""
    with archive.served(tmp_path_factory.mktemp("archive") / "served", release(boot.kernel())) as here:
        yield merged(here.attributes(), BEYOND_A_SPEC)


@pytest.fixture(scope="module")
def based(site: Site, real_disk: Path) -> Path:
    """The disk of a machine that converged as ``base``, twice: all others begin with it, as with an image."""
    vm = site.up("plain", real_disk)
    twice(site, "plain", {}, "role[base]")
    assert site.run("plain", "id -nG ada").split() == ["ada", "engineers"]
    vm.shut_down()
    return vm.folder / "disk.qcow2"


@pytest.fixture(autouse=True)
def one_at_a_time(site: Site) -> Iterator[None]:
    """Machines are large."""
    yield
    site.down()


def test_a_gateway_with_storage_and_remote_access(site: Site, based: Path) -> None:
    """``invoke converge`` and nothing else, after the keys are made."""
    done = site.invoke("vpn.init")
    assert done.returncode == 0, done.stderr
    site.up("gateway", based, data="2G")
    assert site.converge("gateway")["updated"]
    assert site.converge("gateway")["updated"] == []
    report = site.run("gateway", "sudo -n xfs_quota -x -c 'report -p -n -N -b' /srv")
    (ada,) = (line.split() for line in report.splitlines() if line.startswith("#10001 "))
    assert ada[3] == str(1024**2), "KiB"


def test_a_machine_to_log_in_to(site: Site, based: Path, attributes: Mapping[str, Any]) -> None:
    site.up("login", based)
    site.put("login", "/etc/causeway/secrets/kubernetes-join.yaml", JOIN)
    twice(site, "login", attributes, f"role[base],recipe[storage],recipe[ml_stack],recipe[ssh_node],{NODE}")
    units = "kubelet containerd home.automount"
    assert site.run("login", f"systemctl is-active {units}").split() == ["active"] * 3
    site.run("login", "/opt/conda/envs/ml/bin/python -c 'import torch, cv2'")


def test_a_node_without_and_with_gpus(site: Site, based: Path, attributes: Mapping[str, Any]) -> None:
    site.up("titan", based)
    # Modules come from this computer, where packages of the machine must not write.
    layers = "upperdir=/run/modules/upper,workdir=/run/modules/work"
    site.run(
        "titan",
        "sudo -n sh -ec 'modprobe overlay; mkdir -p /run/modules/upper /run/modules/work;"
        f" mount -t overlay -o lowerdir=/usr/lib/modules,{layers} overlay /usr/lib/modules'",
    )
    site.put("titan", "/etc/causeway/secrets/kubernetes-join.yaml", JOIN)
    twice(site, "titan", attributes, f"role[base],recipe[storage],{NODE}")
    assert labels(site, "titan")["causeway.dev/gpu-model"] == "titan-x-pascal"
    gpu_node = f"role[base],recipe[storage],recipe[gpu],{NODE}"
    twice(site, "titan", merged(attributes, AS_A_CLUSTER_HAS_IT), gpu_node)
    assert site.run("titan", "/usr/sbin/modinfo -F version nvidia").strip() == archive.DRIVER


def test_a_machine_that_takes_runs_by_ssh(
    site: Site, based: Path, attributes: Mapping[str, Any], tmp_path: Path
) -> None:
    """By its own run list: the spec has no cluster."""
    site.up("bare", based)
    uv = wheel(tmp_path, "uv", "0.13.9", program="uv")
    site.put("bare", f"/srv/simple/uv/{uv.name}", uv.read_bytes())
    site.put("bare", "/srv/simple/uv/index.html", f'<a href="{uv.name}">uv</a>')
    own = {
        "direct_runs": {"index": "file:///srv/simple/"},
        "software": {"uv": {"version": "0.13.9"}},
        "base": {"login_groups": []},
    }
    twice(site, "bare", merged(attributes, own))
    assert site.run("bare", "uv").split() == ["/opt/causeway/uv/0.13.9", "0.13.9"]
    assert site.run("bare", "ls /var/lib/systemd/linger").split() == ["ada"]
    units = "causeway-firewall.service user@10001.service"
    assert site.run("bare", f"systemctl is-active {units}").split() == ["active"] * 2
    rootless = "systemd-run --user --wait --pipe --quiet podman info --format '{{.Host.Security.Rootless}}'"
    ada = "sudo -n -u ada env XDG_RUNTIME_DIR=/run/user/10001 HOME=/home/ada"
    assert site.run("bare", f"{ada} {rootless}").strip() == "true"


def test_a_master(site: Site, based: Path, attributes: Mapping[str, Any]) -> None:
    """The first one, which begins the cluster once it has the key for it."""
    site.up("master-1", based)
    site.put("master-1", "/etc/causeway/secrets/kubernetes-encryption.yaml", ENCRYPTION)
    twice(site, "master-1", attributes)
    units = "kubelet containerd"
    assert site.run("master-1", f"systemctl is-active {units}").split() == ["active"] * 2


def twice(site: Site, name: str, attributes: Mapping[str, Any], run_list: str = "") -> None:
    """Converge a machine by its own run list or another; the second time nothing may be left to do."""
    assert site.chef(name, attributes, run_list)["updated"]
    assert site.chef(name, attributes, run_list)["updated"] == []


def labels(site: Site, name: str) -> dict[str, str]:
    """A node's, as the API's stand-in has them."""
    node_labels: dict[str, str] = json.loads(site.run(name, "cat /var/lib/stand-in/node.json"))["metadata"][
        "labels"
    ]
    return node_labels


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, ``over`` first."""
    both = {
        name: merged(under[name], over[name]) if isinstance(under[name], Mapping) else over[name]
        for name in under.keys() & over.keys()
    }
    return {**under, **over, **both}
