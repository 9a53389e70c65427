"""Restores a snapshot of etcd. All masters start a new etcd from the same snapshot; the old data is kept.

    causeway-etcd-restore list                  copies in the bucket, JSON a line, the newest first
    causeway-etcd-restore stop                  this master's pods end: etcd, the API server and what uses it
    causeway-etcd-restore restore NAME --yes    NAME of the list, or a file; then its pods start again
    causeway-etcd-restore start                 its pods start as they were

With several masters: `stop` on each, then `restore NAME --yes` on each. With masters that are lost for good:
`--masters master-1,master-3` lists those that remain, the same on each; the others join again with kubeadm.
What was there before stays in the data folder as member.before-<time>.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from kubernetes_node import bucket, etcd
from kubernetes_node.command import run
from kubernetes_node.settings import UTC, Failed, Paths, Settings, read

PODS = ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
"""In the order in which they end; they start the other way round."""
PEER_PORT = 2380


def stop(paths: Paths, seconds: float = 180) -> None:
    """The kubelet ends pods whose manifests are gone; that they have ended is waited for."""
    paths.stopped.mkdir(mode=0o700, exist_ok=True)
    for pod in PODS:
        manifest = paths.manifests / f"{pod}.yaml"
        if manifest.is_file():
            manifest.replace(paths.stopped / manifest.name)
    last = time.monotonic() + seconds
    names = f"^({'|'.join(PODS)})$"
    while run("crictl", "ps", "--quiet", "--name", names).strip():
        if time.monotonic() > last:
            raise Failed(
                f"pods still run after {seconds:.0f} s: see `crictl ps --name '{names}'` and the kubelet"
            )
        time.sleep(1)


def start(paths: Paths) -> None:
    """The manifests are back in their place, and the kubelet starts the pods."""
    for pod in reversed(PODS):
        manifest = paths.stopped / f"{pod}.yaml"
        if manifest.is_file():
            manifest.replace(paths.manifests / manifest.name)
    if paths.stopped.is_dir() and not any(paths.stopped.iterdir()):
        paths.stopped.rmdir()


def cluster_of(
    own: etcd.Member, settings: Settings, wanted: Sequence[str], look_up: Callable[[str], str]
) -> dict[str, str]:
    """Members of the new etcd, name → address for other members. ``look_up``: a name in DNS → its address."""
    names = list(wanted) or sorted({*settings.masters, own.name})
    unknown = [name for name in names if name not in settings.masters and name != own.name]
    if unknown or own.name not in names:
        known = ", ".join(sorted({*settings.masters, own.name}))
        wrong = ", ".join(unknown) if unknown else f"{own.name}, this machine, left out"
        raise Failed(f"--masters: {wrong}; there are {known}")
    return {
        name: own.peer if name == own.name else f"https://{look_up(settings.masters[name])}:{PEER_PORT}"
        for name in names
    }


def address(name: str) -> str:
    """An address of a name. Failed where there is none."""
    try:
        found = socket.getaddrinfo(name, PEER_PORT, socket.AF_INET, socket.SOCK_STREAM)
    except socket.gaierror as problem:
        raise Failed(
            f"{name} has no address: {problem}; name the masters that are left: --masters"
        ) from problem
    return str(found[0][4][0])


def token_of(name: str) -> str:
    """The new etcd's token: the same on all masters, another than that of any etcd before it."""
    return f"causeway-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def restore(
    paths: Paths,
    settings: Settings,
    name: str,
    masters: Sequence[str],
    *,
    force: bool,
    look_up: Callable[[str], str] = address,
) -> None:
    """All of it, on this master."""
    member = etcd.of(paths)
    if not force and member.healthy():
        raise Failed(
            "etcd is well, and all that was written since the copy would be lost: --force, if it must be"
        )
    cluster = cluster_of(member.member, settings, masters, look_up)
    folder = paths.state / "snapshots"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    local = Path(name)
    file = local if local.is_file() else folder / f"restore-{local.name}"
    try:
        if file is not local:
            bucket.Shelf(settings).get(name, file)
        about = member.status(file)
        print(f"{name}: revision {about['revision']}, {about['totalKey']} keys", flush=True)
        stop(paths)
        _swap(member, file, cluster, token_of(local.name))
    finally:
        if file is not local:
            file.unlink(missing_ok=True)
    start(paths)


def _swap(member: etcd.Etcd, file: Path, cluster: dict[str, str], token: str) -> None:
    """The new data in the old one's place: on one file system, so that nothing is ever half there."""
    data = member.member.data
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = data / "restored"
    shutil.rmtree(made, ignore_errors=True)
    member.restore(file, made, cluster, token)
    before = data / "member"
    if before.is_dir():
        before.replace(data / f"member.before-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    (made / "member").replace(before)
    made.rmdir()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="causeway-etcd-restore",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--root", type=Path, default=Path("/"), help="where the system is, if not at /")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("list", "stop", "start"):
        verbs.add_parser(verb)
    asked = verbs.add_parser("restore")
    asked.add_argument("name")
    asked.add_argument("--yes", action="store_true", help="what was written since the copy is lost: so be it")
    asked.add_argument("--force", action="store_true", help="even though etcd is well")
    asked.add_argument("--masters", default="", help="those of the new etcd, if not all: master-1,master-3")
    wanted = parser.parse_args(arguments)
    paths = Paths(wanted.root)
    try:
        _do(wanted, paths)
    except (Failed, OSError) as problem:
        print(f"causeway-etcd-restore: {problem}", file=sys.stderr)
        return 1
    return 0


def _do(wanted: argparse.Namespace, paths: Paths) -> None:
    settings = read(paths)
    match wanted.verb:
        case "list":
            for copy in bucket.Shelf(settings).copies():
                row = {"name": copy.name, "taken": copy.taken.isoformat(), "bytes": copy.bytes}
                print(json.dumps(row))
        case "stop":
            stop(paths)
        case "start":
            start(paths)
        case "restore" if not wanted.yes:
            raise Failed("what was written since the copy will be lost: say --yes")
        case "restore":
            masters = [each for each in wanted.masters.split(",") if each]
            restore(paths, settings, wanted.name, masters, force=wanted.force)


if __name__ == "__main__":
    raise SystemExit(main())
