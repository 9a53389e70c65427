"""One worker on its machine, from its GPUs' lease to its last checkpoint: what its systemd unit runs.

``python3 <run>/kit worker <run> <worker>``. It leases GPUs, waits until all workers of the run have theirs
(``waiting``), and runs ``runtime.py``. SIGTERM is forwarded; a file that ``stop`` creates tells a user's
request from a shutdown of the machine. The first worker's process decides for all (``gang``).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from causeway import packages
from causeway.checkpoints import Policy
from causeway.errors import CausewayError
from causeway.machines.gang import Follower, Leader
from causeway.machines.leases import Gpu, Leases, me
from causeway.machines.tickets import queue
from causeway.machines.waiting import First, Other, Turn
from causeway.places import Place, saving
from causeway.restoring import link
from causeway.runtime import LINES, NEVER_WORKS, STOPPED
from causeway.saving import alive_until

PACKAGES = "packages.json"
"""File in the run's folder: the packages installed for ``python:``."""
_PATIENCE = 180
"""Seconds for which it keeps GPUs for workers that have not started yet. A laptop may disconnect
meanwhile."""
DISK_FULL = 74
"""Exit code (sysexits(3), EX_IOERR) of a worker that could not record how it ended."""
_PAUSE = 0.2
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SIOCGIFADDR = 0x8915
"""netdevice(7)."""
_SHUT_DOWN = "its machine shut down, or the systemd user session there ended"


class Notes:
    """The state of a worker for other processes: its file in the folder of its start, replaced atomically."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "worker.json"
        self._values = {"boot": boot(), "machine": socket.gethostname(), "began": time.time()}

    def write(self, phase: str, **values: Any) -> None:
        """``phase``: ``waiting``, ``leased``, ``running``, ``over``."""
        self._values.update(values, phase=phase, at=time.time())
        write_whole(self._path, json.dumps(self._values))


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically and durably: also after a power cut it is either complete or unchanged."""
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def boot() -> str:
    """The boot id, which changes with each boot of the machine."""
    return _BOOT.read_text(encoding="ascii").strip()


def start_folder(run: Path, start: int) -> Path:
    return run / "starts" / str(start)


class Asked:
    """Whether this process was asked to stop, and by whom."""

    def __init__(self, stop: Path) -> None:
        self._stop = stop
        self._signalled = False
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._signalled = True

    @property
    def by(self) -> str:
        """Return ``person``, ``system``, or empty."""
        if not self._signalled:
            return ""
        return "person" if self._stop.exists() else "system"


def main(run: Path, name: str) -> int:
    """Run the worker; return the exit code: 0 if the run ended with its outcome recorded, 1 if the worker
    never ran; a full disk has a code of its own."""
    try:
        return _main(run, name)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # Nothing can be recorded here, but systemd records how a unit ended.
        print(f"causeway: {error}", file=sys.stderr)
        return DISK_FULL


def _main(run: Path, name: str) -> int:
    os.umask(0o077)
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    start = start_folder(run, record["start"])
    folder = start / name
    folder.mkdir(parents=True, exist_ok=True)
    notes, leases, asked = Notes(folder), Leases(), Asked(start / "stop.json")
    own = record["workers"][name]
    try:
        holder = {
            "user": me(), "run": run.name, "worker": name, "seconds": record["seconds"],
            "priority": record.get("priority", 0), "since": record["started"],
        }  # fmt: skip
        turn = None
        if record.get("waits"):
            turn = Turn(own["gpus"], holder, leases)
            notes.write("waiting")
        else:
            until = time.time() + record["seconds"]
            gpus = leases.take(own["gpus"]["count"], own["gpus"], {**holder, "until": until}, queue())
            notes.write("leased", gpus=[gpu.index for gpu in gpus])
        _wait(start / "go", asked)
        worker = Worker(run, record, name, notes, leases, asked)
        status = worker.run(folder, gpus if turn is None else turn)
    except CausewayError as error:
        notes.write("over", problem=str(error))
        return 1
    except OSError as error:
        notes.write("over", problem=f"{error.strerror or error}: {error.filename or run}")
        return 1
    finally:
        leases.release()
    notes.write("over", **status)
    return 0


def _wait(go: Path, asked: Asked) -> None:
    """Wait until all workers have what they need. Raises CausewayError if that does not happen."""
    until = time.monotonic() + _PATIENCE
    while not go.exists():
        if asked.by:
            raise CausewayError("stopped before it started")
        if time.monotonic() > until:
            raise CausewayError(f"not all workers were started in {_PATIENCE} s")
        time.sleep(_PAUSE)


class Worker:
    """A worker that may begin."""

    def __init__(
        self, run: Path, record: Mapping[str, Any], name: str, notes: Notes, leases: Leases, asked: Asked
    ) -> None:
        self._run = run
        self._record = record
        self._name = name
        self._own = record["workers"][name]
        self._notes = notes
        self._leases = leases
        self._asked = asked
        self._place = Place(run, self._own["role"], self._own["rank"])
        self._asks = ""
        """Who asked it to end: ``person``, ``system``, ``peer``."""

    def run(self, folder: Path, gpus: Sequence[Gpu] | Turn) -> dict[str, Any]:
        """Run it to its end; return how it ended. ``gpus``: its GPUs, or how it gets them."""
        record, first = self._record, self._record["first"]
        leader = follower = None
        if self._name == first:
            machines = {name: each["host"] for name, each in record["workers"].items()}
            leader = Leader(machines, record["decides"], record["token"], record["control"]["port"],
                            record["seconds"])  # fmt: skip
        try:
            if leader is None:
                control = record["control"]
                follower = _follower(self._name, record["token"], control, record["workers"][first]["host"])
            if isinstance(gpus, Turn):
                self._asks = self._await(gpus, leader, follower)
                gpus = gpus.gpus
            if leader is not None:
                leader.begin()
            if self._asks:
                status = self._status({"exit": STOPPED, "lines": [], "at": time.time()})
            else:
                status = self._work(folder, _visible(gpus), leader, follower)
            if leader is not None:
                self._conclude(leader, folder.parent, status)
            elif follower is not None:
                follower.ended(status)
        finally:
            if leader is not None:
                leader.close()
        return status

    def _await(self, turn: Turn, leader: Leader | None, follower: Follower | None) -> str:
        """Wait until it has its GPUs; return who asked it to end before that."""
        part: First | Other
        if leader is not None:
            part = First(turn, leader, self._record["workers"].keys() - {self._name})
        else:
            assert follower is not None
            part = Other(turn, follower)
        said: dict[str, Any] = {}
        try:
            while not (asked := self._wanted(leader, follower)):
                if leader is not None:
                    leader.look(self._name)
                if part.step():
                    self._notes.write("leased", gpus=[gpu.index for gpu in turn.gpus])
                    return ""
                if turn.said != said:
                    said = turn.said
                    self._notes.write("waiting", **said)
                time.sleep(_PAUSE)
        finally:
            turn.ticket.drop()
        return asked

    def _work(
        self, folder: Path, visible: Mapping[str, str], leader: Leader | None, follower: Follower | None
    ) -> dict[str, Any]:
        policy = Policy.of(self._record["policy"])
        place = self._place
        saver = place.saver(policy)
        try:
            environment = self._environment(folder, visible)
        except CausewayError as error:
            lines = str(error).splitlines()
            return self._status(
                {"exit": NEVER_WORKS, "reason": lines[0], "lines": lines[1:], "at": time.time()}
            )
        if asked := self._wanted(leader, follower):
            self._asks = asked
            return self._status({"exit": STOPPED, "lines": [], "at": time.time()})
        place.save_left(policy)
        place.begin(policy)
        self._link()
        # Mostly podman's messages: the runtime keeps the program's output.
        said = folder / "stderr.txt"
        savers = [saver] if self._name in policy.workers else []
        with said.open("wb") as errors, saving(savers, policy.every):
            command = self._command(environment)
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
            )  # fmt: skip
            self._notes.write("running", pid=process.pid)
            self._follow(process, leader, follower)
        if self._name in policy.workers:
            saver.save(alive_until(place.ended))
        self._leases.release()
        try:
            ended = json.loads(place.ended.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            lines = said.read_text(encoding="utf-8", errors="replace").splitlines()[-LINES:]
            reason = f"{command[0]} exited with {process.returncode}, and left no status"
            ended = {"exit": 1, "reason": reason, "lines": lines, "at": time.time()}
        return self._status(ended)

    @property
    def _path(self) -> str:
        """Where the program writes checkpoints if it does not read the variable; empty if nowhere else."""
        return str(self._record["job"].get("checkpoints", {}).get("path", ""))

    def _link(self) -> None:
        if self._path and not self._path.startswith("/"):
            first = self._record["workers"][self._record["first"]]
            folder = Place(self._run, first["role"], first["rank"]).checkpoints
            folder.mkdir(parents=True, exist_ok=True)
            link(self._run / "code", self._path, folder)

    def _status(self, ended: Mapping[str, Any]) -> dict[str, Any]:
        said = {"asked": self._asks, **({"why": _SHUT_DOWN} if self._asks == "system" else {})}
        return {"role": self._own["role"], "rank": self._own["rank"], **ended, **said}

    def _follow(
        self, process: subprocess.Popen[bytes], leader: Leader | None, follower: Follower | None
    ) -> None:
        """Wait until the process has ended, by itself or because the run has."""
        kill_at, kept = None, time.monotonic()
        while process.poll() is None:
            time.sleep(_PAUSE)
            if leader is not None:
                leader.look(self._name)
            if time.monotonic() > kept + 3600:
                self._leases.keep()
                kept = time.monotonic()
            if kill_at is None and (asks := self._wanted(leader, follower)):
                self._asks = asks
                process.terminate()
                kill_at = time.monotonic() + self._record["grace"]
            elif kill_at is not None and time.monotonic() > kill_at:
                process.terminate()  # the runtime kills its command when it is asked twice
                kill_at += 10

    def _wanted(self, leader: Leader | None, follower: Follower | None) -> str:
        """Return who asks this worker to end."""
        if asked := self._asked.by:
            if leader is not None:
                _end(leader, asked)
            return asked
        if leader is not None:
            return "peer" if leader.state else ""
        return "peer" if follower is not None and follower.stop() else ""

    def _conclude(self, leader: Leader, start: Path, status: Mapping[str, Any]) -> None:
        """Wait for the others, and record how the run ended."""
        leader.note(self._name, status)
        while not leader.over:
            leader.look(self._name)
            if asked := self._asked.by:
                _end(leader, asked)
            time.sleep(_PAUSE)
        write_whole(start / "outcome.json", json.dumps(leader.outcome()))

    def _environment(self, folder: Path, visible: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the runtime. Raises CausewayError if packages cannot be installed."""
        run, place = self._run, self._place
        for name in ("results", "workers"):
            (run / name).mkdir(exist_ok=True)
        env = {**os.environ, **_interfaces(self._record["control"]["host"]), **self._own["env"]}
        if self._record["python"]:
            cache = run.parent.parent / "python"
            installed = packages.install_here(
                run / "code",
                self._record["python"],
                self._record["code"],
                cache,
                exactly=self._record.get("exactly", ()),
            )
            env["CAUSEWAY_PYTHON"] = str(installed)
            if self._name == self._record["first"]:
                write_whole(run / PACKAGES, json.dumps({"packages": packages.installed(installed)}))
        return {
            **env,
            **visible,
            **{f"CAUSEWAY_{name}": str(run / name.lower()) for name in ("CODE", "RESULTS")},
            **place.environment,
            "CAUSEWAY_ATTEMPT": str(self._record["start"]),
            "CAUSEWAY_OUTPUT": str(folder),
        }

    def _command(self, environment: dict[str, str]) -> list[str]:
        script = self._own["script"]
        runtime = str(self._run / "runtime.py")
        if not self._record["image"]:
            return [sys.executable, runtime, script]
        # A container sees only the GPUs that it is given.
        environment.pop("CUDA_VISIBLE_DEVICES")
        indices = [index for index in environment.pop("CAUSEWAY_GPU_INDICES").split(",") if index]
        more = []
        if self._path.startswith("/"):
            more.append(f"--volume={self._place.checkpoints}:{self._path}")
            environment["CAUSEWAY_CHECKPOINTS"] = self._path
        return podman(self._run, self._name, self._record["image"], indices, environment, script, more)


def _visible(gpus: Sequence[Gpu]) -> dict[str, str]:
    seen = ",".join(str(gpu.index) for gpu in gpus)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": seen, "CAUSEWAY_GPU_INDICES": seen}


def _end(leader: Leader, asked: str) -> None:
    if asked == "person":
        leader.end("stopped")
    else:
        leader.end("failed", _SHUT_DOWN)


def podman(
    run: Path, worker: str, image: str, gpus: list[str], environment: Mapping[str, str], script: str,
    more: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Return the command that runs the worker in a container. Its folder has the same path as outside, and
    its files belong to the user.

    GPUs are added by the Container Device Interface (podman-run(1), ``--device``), as set up by nvidia-ctk.
    """
    passed = [name for name in environment if name.startswith(("CAUSEWAY_", "CUDA_", "GLOO_", "NCCL_"))]
    given = json.loads((run / "run.json").read_text(encoding="utf-8"))["workers"][worker]["env"]
    # In the unit's own control group, which ends with the unit; without cgroups v2 it is there in any case.
    split = ["--cgroups=split"] if Path("/sys/fs/cgroup/cgroup.controllers").exists() else []
    return [
        "podman", "run", "--rm", "--replace", "--name", f"causeway-{run.name}-{worker}", *split,
        "--network=host", "--userns=keep-id", "--security-opt=label=disable",
        f"--volume={run}:{run}", "--volume=/dev/shm:/dev/shm", *more,
        *(f"--device=nvidia.com/gpu={index}" for index in gpus),
        # Passed in podman's environment: everyone can read a command line.
        *(f"--env={name}" for name in sorted({*passed, *given})),
        "--entrypoint=python3", image, str(run / "runtime.py"), script,
    ]  # fmt: skip


def _follower(worker: str, token: str, control: Mapping[str, Any], host: str) -> Follower:
    try:
        return Follower(worker, token, f"{control['host']}:{control['port']}")
    except OSError as error:
        raise CausewayError(f"the first worker, on {host}, does not answer: {error}") from None


def _interfaces(address: str) -> dict[str, str]:
    """Set the network interface towards the first worker for gloo and NCCL.

    gloo uses the address of the machine's own name, which is 127.0.1.1 in /etc/hosts of Debian and Ubuntu.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
            own = probe.getsockname()[0]
            if own.startswith("127."):
                return {}
            for _, name in socket.if_nameindex():
                try:
                    request = struct.pack("256s", name.encode()[:15])
                    answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
                except OSError:
                    continue  # it has no address
                if socket.inet_ntoa(answer[20:24]) == own:
                    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}
        except OSError:
            pass  # over IPv6 they have to find it themselves
    return {}
