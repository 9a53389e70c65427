"""Mounts as systemd reads them, exports as exportfs reads them, disks that are not formatted over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cookbooks.kitchen import COOKBOOKS, Ask, RenderErb, Tool, run

OPTIONS = {"nfs": "nfsvers=4.2,hard", "efs": "noresvport,noatime", "s3": "nosuid,nodev,allow-other"}

NFS = {
    "path": "/home",
    "kind": "nfs",
    "server": "storage-a.lab.test",
    "export": "/srv/home",
    "read_only": False,
}
EFS = {
    "path": "/results", "kind": "efs", "file_system": "fs-0123abcd", "region": "us-west-2",
    "access_point": "fsap-1", "tls": True, "read_only": False,
}  # fmt: skip
WRITABLE = "allow-delete,allow-overwrite,dir-mode=0777,file-mode=0666"
S3 = {"path": "/data/big-sets", "kind": "s3", "bucket": "data", "region": "us-west-2", "prefix": "sets"}


def parts(ask: Ask, mount: dict[str, Any], host: str = "titan-01.lab.test", *, role: bool = False) -> Any:
    return ask(
        "storage",
        "Causeway::MountUnits.parts(mount, options, host, role)",
        mount=mount,
        options=OPTIONS,
        host=host,
        role=role,
    )


@pytest.mark.parametrize(
    ("mount", "host", "expected"),
    [
        (NFS, "x", ["storage-a.lab.test:/srv/home", "nfs4", "_netdev,nfsvers=4.2,hard"]),
        ({**NFS, "read_only": True}, "x",
         ["storage-a.lab.test:/srv/home", "nfs4", "_netdev,nfsvers=4.2,hard,ro"]),
        (NFS, "storage-a.lab.test", ["/srv/home", "none", "bind"]),
        (EFS, "x", ["fs-0123abcd", "efs",
         "_netdev,region=us-west-2,tls,accesspoint=fsap-1,noresvport,noatime"]),
        ({**EFS, "access_point": None}, "x",
         ["fs-0123abcd", "efs", "_netdev,region=us-west-2,tls,noresvport,noatime"]),
        ({**S3, "read_only": True}, "x",
         ["s3://data/sets/", "mount-s3", "_netdev,region=us-west-2,nosuid,nodev,allow-other,ro"]),
        ({**S3, "prefix": ""}, "x",
         ["s3://data/", "mount-s3", f"_netdev,region=us-west-2,{WRITABLE},nosuid,nodev,allow-other"]),
    ],
    ids=["nfs", "nfs read-only", "on the server", "efs", "efs, no access point", "s3", "s3 written"],
)  # fmt: skip
def test_what_is_mounted(ask: Ask, mount: dict[str, Any], host: str, expected: list[str]) -> None:
    what, kind, options = parts(ask, mount, host)
    assert [what, kind, ",".join(options)] == expected


def test_a_machine_with_a_role_says_to_efs_who_it_is(ask: Ask) -> None:
    """With TLS: without it Amazon's helper refuses."""
    mounts = (EFS, {**EFS, "tls": False}, NFS, S3)
    assert ["iam" in parts(ask, each, role=True)[2] for each in mounts] == [True, False, False, False]


def test_a_kind_that_there_is_not(ask: Ask) -> None:
    refusal = parts(ask, {"path": "/x", "kind": "smb"})["raised"]
    assert "smb" in refusal
    assert "/x" in refusal


def test_units_are_named_as_systemd_names_them(ask: Ask, tool: Tool) -> None:
    paths = [
        "/home",
        "/data/big-sets",
        "/",
        "/a//b/",
        "/.hidden/x.y",
        "/with space/ä",
        "/under_score:1",
        "/a\\b",
    ]
    escaped = ask("storage", "paths.map { |each| Causeway::MountUnits.escape(each) }", paths=paths)
    assert escaped == run(tool("systemd-escape", "systemd"), "--path", *paths).strip().split(" ")


@pytest.mark.parametrize("mount", [NFS, EFS, S3], ids=["nfs", "efs", "s3"])
def test_systemd_reads_the_units(ask: Ask, tool: Tool, tmp_path: Path, mount: dict[str, Any]) -> None:
    """Written as Chef's systemd_unit writes a hash: ``Key = value``."""
    what, kind, options = parts(ask, mount)
    name = ask("storage", "Causeway::MountUnits.escape(path)", path=mount["path"])
    (tmp_path / f"{name}.mount").write_text(
        f"[Unit]\nDescription = {what}\n\n[Mount]\nWhat = {what}\nWhere = {mount['path']}\n"
        f"Type = {kind}\nOptions = {','.join(options)}\nTimeoutSec = 30\n\n[X-Causeway]\nCookbook = storage\n"
    )
    (tmp_path / f"{name}.automount").write_text(
        f"[Automount]\nWhere = {mount['path']}\n\n[Install]\nWantedBy = remote-fs.target\n"
    )
    analyze = tool("systemd-analyze", "systemd")
    output = run(analyze, "verify", tmp_path / f"{name}.mount", tmp_path / f"{name}.automount", ok=None)
    assert [line for line in output.splitlines() if name in line] == []
    assert ask("storage", "Causeway::MountUnits.ours(folder)", folder=str(tmp_path)) == [mount["path"]]


def test_units_of_others_are_not_ours(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "home.mount").write_text("[Mount]\nWhat=/dev/sda1\nWhere=/home\n")
    assert ask("storage", "Causeway::MountUnits.ours(folder)", folder=str(tmp_path)) == []


def test_exportfs_reads_exports(ask: Ask, tool: Tool, tmp_path: Path) -> None:
    exportfs, unshare = tool("exportfs", "nfs-kernel-server"), tool("unshare", "util-linux")
    if os.geteuid() != 0:
        pytest.skip("exportfs wants to be root")
    folder = tmp_path / "with space"
    folder.mkdir()
    clients = ["10.200.0.0/24", "10.64.0.0/16"]
    expression = "Causeway::Exports.line(path, clients, false)"
    line = ask("storage", expression, path=str(folder), clients=clients)
    (tmp_path / "home.exports").write_text(f"{line}\n")
    (tmp_path / "exports").touch()
    # Its own table and its own exports: nothing of this machine's is touched.
    script = (
        "set -e; mkdir -p /etc/exports.d; mount -t tmpfs none /var/lib/nfs; mount --bind $1 /etc/exports.d; "
        "mount --bind $1/exports /etc/exports; $2 -ra; cat /var/lib/nfs/etab"
    )
    table = run(unshare, "--mount", "sh", "-c", script, "sh", tmp_path, exportfs).splitlines()
    assert len(table) == 2
    for client, line in zip(clients, sorted(table), strict=True):
        assert line.startswith(str(folder).replace(" ", "\\040") + "\t" + client)
        options = line.split("(")[1].rstrip(")").split(",")
        assert {"rw", "sync", "root_squash", "no_subtree_check", "sec=sys"} <= set(options)


def test_the_folder_above_the_exports(ask: Ask) -> None:
    exports = {
        "/srv/home": "/srv",
        "/srv/home /srv/data": "/srv",
        "/srv/a/home /srv/b/data": "/srv",
        "/srv/home /export/data": None,
    }
    parents = ask("storage", "lists.map { |each| Causeway::Exports.parent(each.split) }", lists=[*exports])
    assert parents == [*exports.values()]


def test_the_server_speaks_version_4_alone(render_erb: RenderErb, tool: Tool, tmp_path: Path) -> None:
    config = tmp_path / "nfs.conf"
    config.write_text(render_erb("storage", "nfs.conf.erb", variables={"threads": 32}))
    nfsconf = tool("nfsconf", "nfs-common")
    wanted = {"threads": "32", "vers3": "n", "vers4": "y", "vers4.0": "n", "vers4.2": "y", "udp": "n"}
    read = {key: run(nfsconf, "--file", config, "--get", "nfsd", key).strip() for key in wanted}
    assert read == wanted
    assert run(nfsconf, "--file", config, "--get", "mountd", "manage-gids").strip() == "y"


def disk(name: str, **other: Any) -> dict[str, Any]:
    return {
        "name": f"/dev/{name}", "path": f"/dev/{name}", "type": "disk", "size": 1 << 40, "ro": False,
        "fstype": None, "pttype": None, "label": None, "mountpoint": None, **other,
    }  # fmt: skip


USED = {
    "partitions": disk("sda", pttype="gpt", children=[disk("sda1", type="part", fstype="ext4")]),
    "a partition table": disk("sdb", pttype="dos"),
    "ext4 labelled data": disk("sdc", fstype="ext4", label="data"),
    "a part of": disk("sdd", fstype="LVM2_member", children=[disk("vg-x", type="lvm")]),
    "mounted at /": disk("sdh", mountpoint="/"),
    "linux_raid_member": disk("sde", fstype="linux_raid_member"),
    "a part of /dev/md1": disk("sdi", fstype="linux_raid_member", children=[disk("md1", type="raid1")]),
    "LVM2_member": disk("sdj", fstype="LVM2_member"),
}


def test_a_disk_with_anything_on_it_is_not_blank(ask: Ask) -> None:
    contents = ask("storage", "disks.map { |each| Causeway::Disks.contents(each) }", disks=[*USED.values()])
    assert all(text.startswith(start) for text, start in zip(contents, USED, strict=True)), contents


def test_blank_disks_are_whole_writable_and_empty(ask: Ask) -> None:
    tree = [
        *USED.values(),
        disk("nvme2n1"),
        disk("nvme1n1"),
        disk("nvme3n1"),
        disk("loop0", type="loop"),
        disk("md2", type="raid1"),
        disk("sr0", type="rom"),
        disk("sdf", ro=True),
        disk("sdg", size=0),
    ]
    answer = ask(
        "storage", "Causeway::Disks.blank(tree, there: ->(path) { path != '/dev/nvme3n1' })", tree=tree
    )
    assert answer == ["/dev/nvme1n1", "/dev/nvme2n1"]


def test_mkfs_refuses_what_is_not_blank_as_well(tool: Tool, tmp_path: Path) -> None:
    """The second lock: without ``-f``, which the resource never gives."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(400 << 20)
    mkfs = tool("mkfs.xfs", "xfsprogs")
    run(tool("mkfs.ext4", "e2fsprogs"), "-q", image)
    assert "existing filesystem (ext4)" in run(mkfs, "-L", "scratch", image, ok=False)
    resource = (COOKBOOKS / "storage/resources/disk.rb").read_text()
    assert "'-f'" not in resource
    assert "--force" not in resource


REPORT = """\
#0                   0          0          0     00 [--------]
#2001            10240          0    2097152     00 [--------]
#20010               0          0       1024     00 [--------]
"""


def test_quotas_are_read_as_xfs_quota_and_lsattr_have_them(ask: Ask) -> None:
    limits = ask(
        "storage",
        "ids.map { |id| Causeway::Quotas.parse_limit(text, id) }",
        text=REPORT,
        ids=[2001, 20010, 0, 7],
    )
    assert limits == [2048, 1, 0, 0]
    # A number that new files don't get is not this folder's project.
    attributes = {
        " 2001 -------------------P-- /srv/home/ada\n": 2001,
        " 2001 ---------------------- /srv/home/ada\n": 0,
        "": 0,
    }
    projects = ask(
        "storage", "lines.map { |each| Causeway::Quotas.parse_project(each) }", lines=[*attributes]
    )
    assert projects == [*attributes.values()]
