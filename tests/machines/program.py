"""``CAUSEWAY_MACHINES``: instances of the embedded AWS are virtual machines (``localaws.machines``).

``python -m machines.program FOLDER DISK ONLINE VERB``. What a machine is told at its start, cloud-init
would do: of the user data, it knows ``hostname``, ``fqdn`` and ``write_files``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from machines.boot import File
from machines.vm import Broken, Vm


def main() -> int:
    folder, disk, online, verb = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "online", sys.argv[4]
    asked = json.load(sys.stdin)
    vm = Vm(folder / asked["instance"])
    image = folder / "images" / f"{asked.get('image')}.qcow2"
    with (folder / "calls").open("a") as calls:
        calls.write(json.dumps({"verb": verb, **asked}) + "\n")
    try:
        if verb == "start":
            if not vm.folder.exists():
                _make(vm.folder, image if image.exists() else disk, asked, online)
            vm.start(os.getppid())
            print(json.dumps({"address": vm.address}))
        elif verb == "stop":
            vm.shut_down()
        elif verb == "image":
            image.parent.mkdir(exist_ok=True)
            shutil.copyfile(vm.folder / "disk.qcow2", image)
        elif verb == "terminate":
            vm.end()
            (vm.folder / "disk.qcow2").unlink(missing_ok=True)
    except Broken as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def _make(folder: Path, disk: Path, asked: dict[str, Any], online: bool) -> None:
    number = int(asked["instance"].removeprefix("i-")[-4:], 16)
    config = cloud_config(asked["user_data"])
    Vm.make(
        folder,
        disk,
        address=f"127.92.{number >> 8}.{number & 0xFF}",
        public_key=asked["public_key"],
        hostname=config.get("fqdn") or config.get("hostname") or asked["hostname"],
        files={
            row["path"]: File(row["content"], int(row.get("permissions", "0644"), 8))
            for row in config.get("write_files", [])
        },
        online=online,
    )


def cloud_config(user_data: str) -> dict[str, Any]:
    """User data in cloud-init's own form; others say nothing."""
    if not user_data.startswith("#cloud-config"):
        return {}
    import yaml

    read = yaml.safe_load(user_data)
    return read if isinstance(read, dict) else {}


if __name__ == "__main__":
    raise SystemExit(main())
