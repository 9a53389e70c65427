#!/usr/bin/python3
"""Stands in for systemctl(1) on a node, whose first process is no systemd. Standard library only.

It starts the real daemons: what units say with their drop-ins as they stand on the node, as the unit's user,
with its capabilities and limits, in the folders that the unit makes. `enable` and `disable` are done by the
real systemctl, which needs no systemd for that. Left out: sandboxes (ProtectSystem= and the like), the order
of units, new starts of what has ended, and that timers fire.

    systemctl daemon-reload
    systemctl enable|disable [--now] [--quiet] UNIT...
    systemctl start|stop|restart UNIT...
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("/lib/systemd/system", "/etc/systemd/system")
LOGS = Path("/var/log/units")
_RUN = Path("/run/units")
_REAL = "/usr/bin/systemctl"


def files(unit: str) -> list[str]:
    """The patterns of the files that make up a unit, in their order: `openvpn-server@udp.service`."""
    template = re.sub(r"@.*\.", "@.", unit)
    return [f"{folder}/{template}{more}" for folder in FOLDERS for more in ("", ".d/*.conf")]


@dataclass(frozen=True)
class Unit:
    """What a service starts, as commands of setpriv(1) that have the unit's user and rights."""

    kind: str
    """`simple`, `notify`, `oneshot`."""
    folders: tuple[tuple[str, ...], ...]
    """Commands that make its folders."""
    before: tuple[tuple[str, ...], ...]
    command: tuple[str, ...]
    after: tuple[tuple[str, ...], ...]
    """What stopping it does besides."""

    @classmethod
    def parse(cls, text: str, instance: str) -> Unit:
        """Of the files' texts, one after the other."""
        told: dict[str, list[str]] = {}
        for line in text.splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                # An empty assignment takes back all before it: systemd.service(5).
                told[key] = [*told.get(key, []), value] if value else []

        def last(key: str, otherwise: str) -> str:
            return (told.get(key) or [otherwise])[-1]

        def commands(key: str) -> tuple[tuple[str, ...], ...]:
            words = {"%i": instance, "%t": "/run"}
            return tuple(
                tuple(re.sub("%[it]", lambda word: words[word[0]], part) for part in shlex.split(line))
                for line in told.get(key, [])
            )

        dynamic = last("DynamicUser", "no") == "yes"
        user = last("User", "nobody" if dynamic else "root")
        group = last("Group", "nogroup" if dynamic else user)
        rights: tuple[str, ...] = ()
        if user != "root":
            capabilities = last("AmbientCapabilities", "").lower().replace("cap_", "").split()
            only = ",".join(["-all", *(f"+{each}" for each in capabilities)])
            rights = (f"--inh-caps={only}", f"--ambient-caps={only}", f"--bounding-set={only}")
        prefix = (
            *("prlimit", *(f"--nproc={each}" for each in told.get("LimitNPROC", [])[-1:])),
            *("env", f"--chdir={last('WorkingDirectory', '/')}"),
            *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs", *rights),
        )
        folders = tuple(
            ("install", "-d", "-m", last(f"{kind}Mode", "755"), "-o", user, "-g", group, f"{base}/{name}")
            for kind, base in (("RuntimeDirectory", "/run"), ("StateDirectory", "/var/lib"))
            for name in " ".join(told.get(kind, [])).split()
        )
        return cls(
            last("Type", "simple"),
            folders,
            tuple((*prefix, *command) for command in commands("ExecStartPre")),
            (*prefix, *commands("ExecStart")[-1]),
            tuple((*prefix, command[0].removeprefix("-"), *command[1:]) for command in commands("ExecStop")),
        )


def _service(name: str) -> Unit:
    texts = [path.read_text() for pattern in files(name) for path in sorted(_found(pattern))]
    if not texts:
        raise SystemExit(f"Unit {name} not found.")
    return Unit.parse("\n".join(texts), name.partition("@")[2].removesuffix(".service"))


def _found(pattern: str) -> Iterable[Path]:
    folder, _, name = pattern.rpartition("/")
    return Path(folder).glob(name)


def _start(name: str) -> None:
    unit, note = _service(name), _RUN / name
    if note.exists() and (unit.kind == "oneshot" or _alive(int(note.read_text()))):
        return
    for command in (*unit.folders, *unit.before):
        subprocess.run(command, check=True)
    if unit.kind == "oneshot":
        subprocess.run(unit.command, check=True)
        note.write_text("0")
        return
    with (LOGS / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            unit.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    note.write_text(str(process.pid))


def _stop(name: str) -> None:
    unit, note = _service(name), _RUN / name
    if not note.exists():
        return
    number = int(note.read_text())
    if unit.kind != "oneshot" and _alive(number):
        os.kill(number, signal.SIGTERM)
        while _alive(number):
            time.sleep(0.02)
    for command in unit.after:
        subprocess.run(command, check=False)
    note.unlink()


def _alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # who has ended, and nobody has asked how


def main(arguments: list[str]) -> None:
    command, *rest = [each for each in arguments if not each.startswith("-")]
    names = [name if name.endswith((".service", ".timer")) else f"{name}.service" for name in rest]
    for folder in (_RUN, LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    if command == "daemon-reload":
        return  # they are read each time
    steps = [command]
    if command in {"enable", "disable"}:
        subprocess.run([_REAL, command, "--quiet", *names], check=True, env={"SYSTEMD_OFFLINE": "1"})
        steps = [{"enable": "start", "disable": "stop"}[command]] if "--now" in arguments else []
    elif command == "restart":
        steps = ["stop", "start"]
    does = {"start": _start, "stop": _stop}
    for name in names:
        if name.endswith(".service"):
            for step in steps:
                does[step](name)


if __name__ == "__main__":
    if shutil.which("setpriv") is None:
        raise SystemExit("setpriv(1) is missing")
    main(sys.argv[1:])
