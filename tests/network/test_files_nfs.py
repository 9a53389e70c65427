"""Files on a real NFS server, as its exports and its folders are rendered: whose they are to its clients.

The server is the kernel's; exports are the cookbook's lines. The CSI driver is no program that is here: its
calls on the file system are made by hand, in its order (csi-driver-nfs, ``controllerserver.go``).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from cookbooks.kitchen import ask
from golden_clusters import golden
from network import pod_rules
from network.lab import Lab
from network.machine import Result
from network.node import Node, wait_for
from strategies.outputs import outputs_for

from infra.render.kubernetes import volumes

SERVER, MASTER, WORKER = "10.200.0.5", "10.200.0.6", "10.200.0.7"
ADA, ALAN = 10001, 10002
EXPORT = "/srv/results"
OPTIONS = "nfsvers=4.2,proto=tcp,hard,noatime,nosuid,nodev"

POD = """
ip link add cni0 type bridge
ip address add 10.128.7.1/24 dev cni0
ip link set cni0 up
ip netns add pod
ip link add veth0 type veth peer name eth0 netns pod
ip link set veth0 master cni0 up
ip -n pod address add 10.128.7.2/24 dev eth0
ip -n pod link set eth0 up
ip -n pod route add default via 10.128.7.1
sysctl -q net.ipv4.ip_forward=1
"""
"""A pod behind a node's bridge, as flannel's plugin makes it."""

SERVE = """
modprobe nfsd
modprobe loop
truncate -s 64M /tmp/disk
mkfs.ext4 -q /tmp/disk
mkdir -p /srv/disk /var/lib/nfs/v4recovery /etc/exports.d /etc/nfs.conf.d
mount -o loop /tmp/disk /srv/disk
# As the recipe storage::server makes them.
mkdir /srv/disk/srv
install -d -m 1777 /srv/disk/srv/results
install -d -m 0700 -o nobody -g nogroup /srv/disk/srv/results/volumes
# A node's root folder is of a kind that the kernel can't export.
printf '[exports]\nrootdir=/srv/disk\n' >/etc/nfs.conf.d/root.conf
mount -t nfsd nfsd /proc/fs/nfsd
echo 10 >/proc/fs/nfsd/nfsv4gracetime
exportfs -ra
rpc.nfsd --no-nfs-version 3 --nfs-version 4.2 4
"""


def classes() -> dict[str, Any]:
    """The class of the export, as it is rendered."""
    cluster = golden("research")
    for each in volumes.objects(cluster, outputs_for(cluster))["classes.yaml"]:
        if each["metadata"]["name"] == "nfs-results":
            return each
    raise AssertionError("research has a class on NFS")


def ruby() -> str:
    found = shutil.which("ruby")
    assert found is not None, "ruby is missing (package ruby)"
    return found


@pytest.fixture(scope="module")
def nodes(lab: Lab) -> Iterator[tuple[Node, Node, Node]]:
    server, master, worker = (lab.node(name) for name in ("storage-a", "master-1", "titan-01"))
    lan = lab.segment("lan")
    for node, address in ((server, SERVER), (master, MASTER), (worker, WORKER)):
        lan.attach(node, "eth0", f"{address}/24")
    line = ask(
        ruby(),
        "storage",
        "Causeway::Exports.line(path, clients, false)",
        path=EXPORT,
        clients=["10.200.0.0/24"],
    )
    server.write("/etc/exports.d/results.exports", f"{line}\n")
    server.check("sh", "-ec", SERVE, timeout=60)
    server.start("rpc.mountd", "--foreground", "--manage-gids", "--no-nfs-version", "3")
    mount(worker, EXPORT, "/srv/mnt/results")
    yield server, master, worker
    for node in (worker, master):
        node.run("umount", "--all", "--types", "nfs4")
    server.check("sh", "-ec", "exportfs -ua; rpc.nfsd 0")


def mount(node: Node, what: str, where: str) -> None:
    node.check("mkdir", "-p", where)
    node.check("mount", "-t", "nfs4", "-o", OPTIONS, f"{SERVER}:{what}", where, timeout=60)


def test_no_pod_speaks_nfs_not_even_to_its_own_node(nodes: tuple[Node, Node, Node]) -> None:
    """With the node's own rules alone, as before the program of network policies runs."""
    server, _, worker = nodes
    worker.check("sh", "-ec", POD)
    server.check("ip", "route", "add", "10.128.7.0/24", "via", WORKER)

    def reaches(address: str, port: int) -> bool:
        words = (
            "ip",
            "netns",
            "exec",
            "pod",
            "socat",
            "-u",
            "OPEN:/dev/null",
            f"TCP:{address}:{port},connect-timeout=5",
        )
        return worker.run(*words).ok

    worker.start("socat", "TCP-LISTEN:2049,fork,reuseaddr", "OPEN:/dev/null")
    for address in (SERVER, "10.128.7.1"):  # without the rules, it answers
        wait_for(lambda: reaches(address, 2049), f"{address} from a pod")  # noqa: B023
    for _ in range(2):  # again at each run of Chef that changes it
        pod_rules.load(worker, golden("research"))
    assert not reaches(SERVER, 2049)
    assert not reaches("10.128.7.1", 2049)
    assert worker.check("ls", "/srv/mnt/results")  # and the node itself does


def by(node: Node, uid: int, script: str) -> Result:
    """What a process with this uid does, as a pod has it."""
    words = ("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--no-new-privs")
    return node.run(*words, "sh", "-ec", script)


def test_everybody_writes_results_and_nobody_takes_anothers(nodes: tuple[Node, Node, Node]) -> None:
    _, _, worker = nodes
    assert by(
        worker, ADA, "umask 077; mkdir /srv/mnt/results/ada; echo 0.9 >/srv/mnt/results/ada/accuracy"
    ).ok
    assert not by(worker, ALAN, "cat /srv/mnt/results/ada/accuracy").ok
    assert not by(worker, ALAN, "mv /srv/mnt/results/ada /srv/mnt/results/alan").ok
    assert by(worker, ADA, "cat /srv/mnt/results/ada/accuracy").stdout == "0.9\n"
    # Nor root of a machine.
    assert not worker.run("cat", "/srv/mnt/results/ada/accuracy").ok
    assert worker.run("stat", "-c", "%u %a", "/srv/mnt/results/ada").stdout == f"{ADA} 700\n"


def test_a_volume_is_made_seen_by_its_pods_alone_and_put_away(nodes: tuple[Node, Node, Node]) -> None:
    server, master, worker = nodes
    parameters = classes()["parameters"]
    share = parameters["share"]
    place = (
        parameters["subDir"]
        .replace("${pvc.metadata.namespace}", "user-ada")
        .replace("${pvc.metadata.name}", "scratch")
        .replace("${pv.metadata.name}", "pvc-1")
    )
    # CreateVolume, on a master.
    mount(master, share, "/srv/mnt/share")
    master.check("mkdir", "-p", f"/srv/mnt/share/{place}")
    master.check("chmod", parameters["mountPermissions"], f"/srv/mnt/share/{place}")
    # NodePublishVolume; then a pod of any user.
    mount(worker, f"{share}/{place}", "/srv/mnt/volume")
    for uid in (ADA, 0):
        words = f"mkdir /srv/mnt/volume/{uid}; echo x >/srv/mnt/volume/{uid}/file"
        assert by(worker, uid, words).ok, uid
    # By the path of machines there is no way to it.
    assert not by(worker, ALAN, f"ls /srv/mnt/results/volumes/{place}").ok
    assert not by(worker, ALAN, "ls /srv/mnt/results/volumes").ok
    worker.check("umount", "/srv/mnt/volume")
    # DeleteVolume: the driver can't delete what Ada has made, and need not.
    assert parameters["onDelete"] == "archive"
    assert not master.run("rm", "-r", f"/srv/mnt/share/{place}").ok
    master.check("mkdir", "-p", f"/srv/mnt/share/archived-{place.rpartition('/')[0]}")
    master.check("mv", f"/srv/mnt/share/{place}", f"/srv/mnt/share/archived-{place}")
    master.check("umount", "/srv/mnt/share")
    # What the server's timer does some days later; -1 days are over at once.
    folder = f"{EXPORT}/volumes/archived-live"
    service = ask(ruby(), "storage", "Causeway::Exports.emptying([folder], days)", folder=folder, days=7)
    (command,) = service["Service"]["ExecStart"]
    assert "-ctime +6 " in command
    words = command.removeprefix("-").replace(folder, f"/srv/disk{folder}").split()
    server.check(*words)
    assert server.check("ls", f"/srv/disk{folder}/user-ada") == "scratch-pvc-1\n"
    server.check(*["+-1" if word == "+6" else word for word in words])
    assert server.check("ls", f"/srv/disk{folder}/user-ada") == ""
