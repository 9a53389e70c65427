"""What the script leaves of a node that is removed, in network and mount namespaces; without kubeadm."""

from __future__ import annotations

import subprocess

import pytest

from infra.drive.kubernetes.nodes import RESET

ROOM = """\
for folder in /etc /var/lib /run; do mount -t tmpfs room "$folder" || exit 77; done
"""
NODE = """\
ip link add cni0 type bridge && ip address add 10.4.1.1/24 dev cni0 && ip link set cni0 up
ip link add flannel.1 type bridge
mkdir -p /etc/cni/net.d /etc/kubernetes /etc/causeway/secrets /run/flannel /var/lib/cni/networks/cbr0
touch /etc/cni/net.d/10-flannel.conflist /var/lib/cni/networks/cbr0/10.4.1.2 /run/flannel/subnet.env
touch /etc/causeway/secrets/kubernetes-join.yaml /etc/causeway/secrets/other
"""


def test_a_machine_that_joins_again_gets_the_addresses_of_its_new_pod_range() -> None:
    script = f'mount --make-rprivate / && {{ {ROOM} }} && {{ {NODE} }} && sh -c "$1"'
    looks = "ip -brief link; find /etc/cni /var/lib/cni /run /etc/causeway -type f"
    kubeadm = "command() { false; }\n"  # Whichever is on this machine is not to be run.
    reset = ["unshare", "--net", "--mount", "sh", "-ec", script, "sh", f"({kubeadm}{RESET}) && {looks}"]
    done = subprocess.run(reset, capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("needs root: namespaces and file systems of its own")
    assert done.returncode == 0, done.stderr
    assert "cni0" not in done.stdout
    assert "flannel.1" not in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("/")] == [
        "/etc/causeway/secrets/other"
    ]
