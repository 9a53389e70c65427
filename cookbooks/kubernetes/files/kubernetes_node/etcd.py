"""This master's member of etcd: what its manifest says of it, and etcd's own tools."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes_node.command import attempt, run
from kubernetes_node.settings import Failed, Paths

_FLAG = re.compile(r"^\s*- --([a-z-]+)=(.*)$", re.MULTILINE)
_IMAGE = re.compile(r"^\s*image: (\S+)$", re.MULTILINE)
TOOLS = ("etcdctl", "etcdutl")


@dataclass(frozen=True)
class Member:
    """A member, as kubeadm wrote it down."""

    name: str
    data: Path
    client: str
    """Its address for programs on this machine."""
    peer: str
    """Its address for other members."""
    image: str
    pki: Path


def member(paths: Paths) -> Member:
    """Of the manifest, wherever it is now. Failed on a machine that is not a master."""
    for folder in (paths.manifests, paths.stopped):
        if (folder / "etcd.yaml").is_file():
            return _parsed((folder / "etcd.yaml").read_text(encoding="utf-8"), paths)
    raise Failed(f"{paths.manifests}/etcd.yaml not found: this machine is not a master")


def _parsed(manifest: str, paths: Paths) -> Member:
    flags: Mapping[str, str] = dict(_FLAG.findall(manifest))
    image = _IMAGE.search(manifest)
    try:
        clients = flags["listen-client-urls"].split(",")
        return Member(
            name=flags["name"],
            data=Path(flags["data-dir"]),
            client=next((each for each in clients if "127.0.0.1" in each), clients[0]),
            peer=flags["initial-advertise-peer-urls"],
            image=image[1] if image else "",
            pki=paths.kubernetes / "pki/etcd",
        )
    except KeyError as problem:
        raise Failed(f"the manifest of etcd has no flag --{problem.args[0]}") from problem


class Etcd:
    """The member, spoken to by etcd's tools."""

    def __init__(self, one: Member, tools: Path | None) -> None:
        """``tools``: the folder that holds them; None where they are on the PATH."""
        self.member = one
        self._tools = tools

    def tool(self, name: str) -> str | None:
        """Where a tool is. etcd 3.4 has no etcdutl; 3.6 reads files by it alone."""
        if self._tools is not None:
            return str(self._tools / name) if (self._tools / name).exists() else None
        return shutil.which(name)

    def _ask(self, *arguments: str, seconds: float = 300) -> Any:
        pki = self.member.pki
        return attempt(
            [
                self.tool("etcdctl") or "etcdctl",
                f"--endpoints={self.member.client}",
                f"--cacert={pki / 'ca.crt'}",
                f"--cert={pki / 'healthcheck-client.crt'}",
                f"--key={pki / 'healthcheck-client.key'}",
                "--command-timeout=10s" if seconds < 60 else f"--command-timeout={seconds:.0f}s",
                *arguments,
            ],
            seconds=seconds + 10,
        )

    def _said(self, *arguments: str, seconds: float = 30) -> str:
        ended = self._ask(*arguments, seconds=seconds)
        if ended.returncode:
            raise Failed(f"etcdctl {' '.join(arguments[:2])}: {ended.stderr.strip() or ended.stdout.strip()}")
        return str(ended.stdout)

    def healthy(self) -> bool:
        """Whether a majority of members serves: etcd writes something to answer."""
        return bool(self._ask("endpoint", "health", seconds=30).returncode == 0)

    def leads(self) -> bool:
        """Whether this member leads. Failed where it does not answer."""
        status = json.loads(self._said("endpoint", "status", "--write-out=json"))[0]["Status"]
        return bool(status["leader"] == status["header"]["member_id"])

    def members(self) -> dict[str, str]:
        """Name → its address for other members, as ``name=https://10.0.0.5:2380`` has it."""
        listed = json.loads(self._said("member", "list", "--write-out=json"))["members"]
        return {each["name"]: each["peerURLs"][0] for each in listed if each.get("name")}

    def save(self, file: Path) -> None:
        """A copy of the data, whole or not at all."""
        self._said("snapshot", "save", str(file), seconds=1500)

    def status(self, file: Path) -> dict[str, int]:
        """Of a copy: its hash, revision, totalKey and totalSize. Failed for a file that is none."""
        tool = self.tool("etcdutl") or self.tool("etcdctl") or "etcdctl"
        found: dict[str, int] = json.loads(run(tool, "snapshot", "status", file, "--write-out=json"))
        return found

    def restore(self, file: Path, into: Path, cluster: Mapping[str, str], token: str) -> None:
        """A data folder of a new cluster with these members, from a copy. ``into`` must not be there yet."""
        tool = self.tool("etcdutl") or self.tool("etcdctl") or "etcdctl"
        options = [
            f"--name={self.member.name}",
            f"--initial-cluster={','.join(f'{name}={url}' for name, url in sorted(cluster.items()))}",
            f"--initial-cluster-token={token}",
            f"--initial-advertise-peer-urls={cluster[self.member.name]}",
            f"--data-dir={into}",
        ]
        # Watchers of the API hold revisions of lost data: etcd must not use these numbers again.
        if "--bump-revision" in run(tool, "snapshot", "restore", "--help"):
            options += ["--bump-revision=1000000000", "--mark-compacted"]
        run(tool, "snapshot", "restore", file, *options, seconds=1500)


def tools(paths: Paths, one: Member) -> Path | None:
    """The folder of the tools that came with the very etcd that runs: taken from its image, once.

    None without containerd: those on the PATH are used.
    """
    if shutil.which("ctr") is None:
        return None
    folder = paths.state / "etcd-tools"
    stamp = folder / "image"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == one.image:
        return folder
    mount = paths.root / "run/causeway/etcd-image"
    mount.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    run("ctr", "--namespace", "k8s.io", "images", "mount", one.image, mount)
    try:
        for name in TOOLS:
            source = mount / "usr/local/bin" / name
            if source.is_file():
                shutil.copy2(source, folder / name)
    finally:
        attempt(["ctr", "--namespace", "k8s.io", "images", "unmount", "--rm", str(mount)])
    stamp.write_text(one.image, encoding="utf-8")
    return folder


def of(paths: Paths) -> Etcd:
    """This master's."""
    one = member(paths)
    return Etcd(one, tools(paths, one))
