"""Answers the client's requests on a machine: ``causeway.machines.ssh`` sends a request over ssh, preceded by
this code.

A request is a verb and a line of JSON; the rest of stdin depends on the verb. Answers are lines of JSON, or a
stream. An error that the user should see is an answer as well: ``{"error": …}``.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import pwd
import select
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from causeway import checkpoints
from causeway.checkpoints import Policy
from causeway.errors import CausewayError
from causeway.machines import leases, tickets
from causeway.machines.reserving import STATUS
from causeway.machines.worker import DISK_FULL, PACKAGES, boot, start_folder, write_whole
from causeway.places import Place
from causeway.saving import alive_until, look, parts_in
from causeway.shipped import ship
from causeway.storage import Folder

_CHUNK = 1 << 20
_ROOM = 64 << 20
"""Bytes that have to be free in addition to what is sent."""
_LEASED = 60
"""Seconds for all workers of this machine to lease their GPUs."""
_SETTLES = 30
"""Seconds in addition to ``grace`` that a worker's unit has to end: for its last checkpoint."""
_MOMENT = 3
"""Seconds for a worker whose turn it is to get its GPUs."""
_PAUSE = 0.2
_ARCHIVE = "code.tar.gz"


def main(kit: Path, verb: str, request: Mapping[str, Any], stream: BinaryIO) -> int:
    """Answer a request; return the exit code, which is 1 after an error."""
    os.umask(0o077)
    os.environ["PATH"] = f"{Path.home() / '.local/bin'}:{os.environ.get('PATH', os.defpath)}"
    # sshd without a PAM session does not set it.
    os.environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    try:
        Host(kit, request, stream).verbs[verb]()
    except CausewayError as error:
        _say(error=str(error))
        return 1
    except OSError as error:
        _say(error=": ".join(str(each) for each in (error.filename, error.strerror or error) if each))
        return 1
    return 0


def _say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values, ensure_ascii=False) + "\n")
    sys.stdout.flush()


class Host:
    """Handles one request on this machine."""

    def __init__(self, kit: Path, request: Mapping[str, Any], stream: BinaryIO) -> None:
        self._kit = kit
        self._request = request
        self._stream = stream
        self._root = kit.parent.parent
        self._runs = self._root / "runs"
        self._runs.mkdir(parents=True, exist_ok=True)
        self.verbs: Mapping[str, Callable[[], None]] = {
            "check": self._check, "claim": self._claim, "deliver": self._deliver, "listen": self._listen,
            "reach": self._reach, "start": self._start, "go": self._go, "end": self._end,
            "remove": self._remove, "back": self._back,
            "status": self._status, "output": self._output, "stop": self._stop, "settle": self._settle,
            "send": self._send, "receive": self._receive, "left": self._left,
            "gpus": self._gpus, "reserve": self._reserve, "unreserve": self._unreserve,
        }  # fmt: skip

    @property
    def _run(self) -> Path:
        return self._runs / str(self._request["run"])

    # Check

    def _check(self) -> None:
        """Answer with what this machine has, and what prevents it from running a worker: ``problems``."""
        problems = [*self._session(), *self._programs(), *self._space()]
        found: list[leases.Gpu] = []
        waiting: list[dict[str, Any]] = []
        taken: dict[str, str] = {}
        try:
            found = leases.gpus()
            waiting = tickets.queue()
            taken = leases.taken(found, waiting)
        except CausewayError as error:
            problems.append(str(error))
        names = [path.name for path in self._runs.iterdir()]
        gpus = [
            {**vars(gpu), "taken": taken.get(gpu.uuid, ""),
             "fits": [leases.fits(gpu, wanted) for wanted in self._request["gpus"]]}
            for gpu in found
        ]  # fmt: skip
        _say(
            problems=problems,
            root=self._identity(),
            gpus=gpus,
            queue=waiting,
            code=self._code(self._request["code"]) is not None,
            runs=names,
            podman=bool(shutil.which("podman")),
        )

    def _session(self) -> Iterator[str]:
        """Check for a systemd instance of the user that outlives the login."""
        user = pwd.getpwuid(os.getuid()).pw_name
        if shutil.which("systemd-run") is None:
            yield "systemd-run not found: runs are systemd user units"
            return
        if not _lingers(user):
            enable = ["loginctl", "--no-ask-password", "enable-linger"]
            if shutil.which("loginctl") is None or subprocess.run(enable, capture_output=True).returncode:
                yield f"lingering is off, so a run ends with this login: sudo loginctl enable-linger {user}"
                return
            _wait_for(self._user_systemd, 10)
        if not self._user_systemd():
            shown = subprocess.run(["systemctl", "--user", "show"], capture_output=True, text=True)
            said = (shown.stderr.strip().splitlines() or ["no answer"])[0]
            yield f"systemctl --user: {said}: is user@{os.getuid()}.service running? (package libpam-systemd)"

    @staticmethod
    def _user_systemd() -> bool:
        return not subprocess.run(["systemctl", "--user", "show"], capture_output=True).returncode

    def _programs(self) -> Iterator[str]:
        if self._request["uv"] and shutil.which("uv") is None:
            yield "uv not found; `python:` needs it: pip install --user uv"
        if shutil.which("tar") is None:
            yield "tar not found; it is needed to unpack code"

    def _space(self) -> Iterator[str]:
        free = shutil.disk_usage(self._root).free
        needed = int(self._request["bytes"]) + _ROOM
        if free < needed:
            yield f"the disk is full: {free >> 20} MiB free in {self._root}, {needed >> 20} MiB are needed"

    def _identity(self) -> str:
        """Return the identity of the folder: machines with the same one share their home folders."""
        path = self._root / "id"
        if not path.exists():
            own = self._root / f".id-{uuid.uuid4().hex}"
            own.write_text(uuid.uuid4().hex, encoding="ascii")
            with contextlib.suppress(FileExistsError):
                os.link(own, path)  # the whole file, and a single GPU
            own.unlink()
        return path.read_text(encoding="ascii")

    def _gpus(self) -> None:
        """Answer with who has each GPU, until when, and who waits."""
        found = leases.gpus()
        states = leases.states(found)
        reasons = leases.taken(found, (), states)
        _say(
            gpus=[{**vars(gpu), "taken": reasons.get(gpu.uuid, ""), "lease": dict(states[gpu.uuid].holder),
                   "reserved": dict(states[gpu.uuid].reserved)} for gpu in found],
            queue=tickets.queue(),
        )  # fmt: skip

    def _reserve(self) -> None:
        """Lease GPUs without a run: a systemd unit holds them until the end."""
        if problems := [*self._session()]:
            raise CausewayError("; ".join(problems))
        name = uuid.uuid4().hex[:12]
        folder = self._root / "reservations" / name
        folder.mkdir(parents=True)
        until = time.time() + self._request["seconds"]
        _write(folder / "reservation.json", {"gpus": self._request["gpus"], "until": until})
        own = [f"--setenv=PATH={os.environ['PATH']}", "--property=TimeoutStopSec=infinity",
               "--property=KillMode=mixed"]  # fmt: skip
        command = [sys.executable, str(self._kit), "reserve", str(folder)]
        done = subprocess.run(
            ["systemd-run", "--user", "--quiet", f"--unit=causeway-reserved-{name}", *own, "--", *command],
            capture_output=True, text=True,
        )  # fmt: skip
        status = folder / STATUS
        if not done.returncode:
            _wait_for(status.exists, _LEASED)
        said = _read(status)
        if "gpus" not in said:
            shutil.rmtree(folder, ignore_errors=True)
            raise CausewayError(said.get("problem") or f"systemd-run: {done.stderr.strip() or 'no answer'}")
        _say(gpus=said["gpus"], until=until, name=name)

    def _unreserve(self) -> None:
        """End this user's reservations of this machine, or the one with that name; return their GPUs."""
        found, folders = [], [*(self._root / "reservations").glob(self._request["name"])]
        for folder in folders:
            said = _read(folder / STATUS)
            if said.get("machine") != socket.gethostname():
                continue
            unit = f"causeway-reserved-{folder.name}.service"
            if subprocess.run(["systemctl", "--user", "--quiet", "is-active", unit]).returncode:
                shutil.rmtree(folder, ignore_errors=True)  # the machine was rebooted
                continue
            subprocess.run(["systemctl", "--user", "--no-block", "stop", unit], capture_output=True)
            found += said["gpus"]
        # GPUs that no run uses are free once this has answered.
        _wait_for(lambda: not any(folder.exists() for folder in folders), _MOMENT)
        _say(gpus=sorted(found))

    def _claim(self) -> None:
        """Create the folder of a run, unless it exists."""
        try:
            self._run.mkdir()
        except FileExistsError:
            _say(claimed=False)
        else:
            _say(claimed=True)

    def _listen(self) -> None:
        """Listen on free ports until the client has tried to connect; the last port answers.

        A second answer, after stdin has ended, confirms that the ports are closed: workers use them
        immediately.
        """
        with contextlib.ExitStack() as stack:
            listeners = []
            for _ in range(self._request["ports"] + 1):
                listener = stack.enter_context(socket.create_server(("", 0)))
                listeners.append(listener)
            word = uuid.uuid4().hex
            ports = [each.getsockname()[1] for each in listeners]
            _say(addresses=_addresses(), ports=ports, word=word)
            listeners[-1].setblocking(False)
            os.set_blocking(self._stream.fileno(), False)
            while self._stream.read(1) != b"":
                select.select([self._stream.fileno(), listeners[-1].fileno()], [], [])
                with contextlib.suppress(OSError), listeners[-1].accept()[0] as connection:
                    connection.sendall(word.encode())
        _say(closed=True)

    def _reach(self) -> None:
        """Answer with which address of each machine answers from here: name → address, or null."""
        _say(reached={name: _reachable(each) for name, each in self._request["machines"].items()})

    def _deliver(self) -> None:
        """Store the run's record and code for its starts."""
        run, record = self._run, self._request["record"]
        kept = self._code(record["code"])
        if self._request["size"]:
            with (run / _ARCHIVE).open("wb") as archive:
                _copy(self._stream, archive, self._request["size"])
        elif kept and not (run / _ARCHIVE).exists():
            os.link(kept, run / _ARCHIVE)
        _unpack(run, record["code"])
        shutil.rmtree(run / "kit", ignore_errors=True)
        # A copy: the run's units start from it as long as the run exists.
        shutil.copytree(self._kit, run / "kit", ignore=shutil.ignore_patterns("__pycache__"))
        ship(run)
        folder = start_folder(run, record["start"])
        folder.mkdir(parents=True, exist_ok=True)
        for path in (folder / "run.json", run / "run.json"):
            _write(path, record)
        self._keep_code(record["code"])
        _say(delivered=True)

    def _code(self, digest: str) -> Path | None:
        """Return the path of code with this digest that a run here has; None if it has to be sent."""
        path = self._root / "code" / f"{digest}.tar.gz"
        return path if digest and path.exists() else None

    def _keep_code(self, digest: str) -> None:
        """Keep the run's code under its digest, which unpacking has verified. A hard link takes up no space,
        and is removed when no run has the file any more."""
        folder = self._root / "code"
        folder.mkdir(exist_ok=True)
        for path in folder.glob("*.tar.gz"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_nlink == 1:
                    path.unlink()
        # Without hard links, code is sent each time.
        with contextlib.suppress(OSError):
            if digest:
                os.link(self._run / _ARCHIVE, folder / f"{digest}.tar.gz")

    # Start

    def _start(self) -> None:
        """Start units, and wait until their GPUs are leased or in the queue. Answers worker → ``leased``,
        ``waits`` or ``problem``."""
        record, names = _read(self._run / "run.json"), self._request["workers"]
        for name in names:
            unit = _unit(self._run.name, name)
            subprocess.run(["systemctl", "--user", "reset-failed", unit], capture_output=True)
            own = [
                *(f"--setenv={name}={os.environ[name]}" for name in ("PATH", "LANG") if name in os.environ),
                *(["--property=Delegate=yes"] if record["image"] else []),
                "--property=KillMode=mixed", f"--property=TimeoutStopSec={record['grace'] + _SETTLES}",
                f"--description=causeway {self._run.name} {name}",
            ]  # fmt: skip
            command = [sys.executable, str(self._run / "kit"), "worker", str(self._run), name]
            done = subprocess.run(
                ["systemd-run", "--user", "--quiet", f"--unit={unit}", *own, "--", *command],
                capture_output=True, text=True,
            )  # fmt: skip
            if done.returncode:
                raise CausewayError(f"systemd-run: {done.stderr.strip()}")
        folder = start_folder(self._run, record["start"])
        _wait_for(lambda: all((folder / name / "worker.json").exists() for name in names), _LEASED)
        found = {name: _read(folder / name / "worker.json") for name in names}
        _say(workers={
            name: {"leased": said["gpus"]} if said.get("phase") == "leased"
            else {"waits": True} if said.get("phase") == "waiting"
            else {"problem": said.get("problem") or f"its unit {_unit(self._run.name, name)} does not start"}
            for name, said in found.items()
        })  # fmt: skip

    def _go(self) -> None:
        """Let workers begin; answer which of them still wait for GPUs after a moment."""
        folder = start_folder(self._run, self._request["start"])
        (folder / "go").touch()
        names = self._request["workers"]

        def waiting() -> list[str]:
            return [name for name in names if _read(folder / name / "worker.json").get("phase") == "waiting"]

        _wait_for(lambda: not waiting(), _MOMENT)
        _say(started=True, waits=waiting())

    def _end(self) -> None:
        self._stop_units(self._request["workers"])
        _say(ended=True)

    def _remove(self) -> None:
        shutil.rmtree(self._run, ignore_errors=True)
        _say(removed=True)

    def _back(self) -> None:
        """Undo the last start, which failed: the run is as it was before."""
        number = _read(self._run / "run.json").get("start", 0)
        before = start_folder(self._run, number - 1) / "run.json"
        if number == self._request["start"] and before.exists():
            shutil.copyfile(before, self._run / "run.json")
            shutil.rmtree(start_folder(self._run, number), ignore_errors=True)
        _say(back=True)

    # Inspect

    def _status(self) -> None:
        """Answer with the records of the named runs, or of all, and the state of their workers here."""
        wanted = self._request["runs"]
        paths = [self._runs / name for name in wanted] if wanted else sorted(self._runs.iterdir())
        _say(runs=[self._known(path) for path in paths if _read(path / "run.json")],
             booted=_booted(), root=self._identity())  # fmt: skip

    def _known(self, run: Path) -> dict[str, Any]:
        record = _read(run / "run.json")
        start = start_folder(run, record["start"])
        workers = {}
        for name in record["workers"]:
            said = _read(start / name / "worker.json")
            if said and said["machine"] == socket.gethostname():
                workers[name] = _alive(run.name, name, said)
        kept = any((run / "kept").glob("manifests/*/*.json")) or _left_whole(run, record)
        return {"record": record, "outcome": _read(start / "outcome.json"), "workers": workers, "kept": kept,
                "stopped": _read(start / "stop.json"), **self._reported(run, record)}  # fmt: skip

    def _reported(self, run: Path, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the first worker has reported, from a byte offset on: complete lines, and the offset of
        their end."""
        begin = self._request.get("reports", {}).get(run.name)
        if begin is None:
            return {}
        first = record["workers"][record["first"]]
        try:
            with Place(run, first["role"], first["rank"]).metrics.open("rb") as file:
                file.seek(begin)
                data = file.read()
        except FileNotFoundError:
            data = b""
        whole = data[: data.rfind(b"\n") + 1]
        return {"reports": whole.decode("utf-8", "replace"), "end": begin + len(whole)}

    def _output(self) -> None:
        """Send the workers' lines as ``[worker, line]``; ``follow``: until no worker is running on this
        machine."""
        record = _read(self._run / "run.json")
        if not record:
            return
        folder = start_folder(self._run, self._request["start"] or record["start"])
        tails = {name: Tail(folder / name) for name in self._request["workers"] or record["workers"]}
        over = False
        os.set_blocking(self._stream.fileno(), False)
        while True:
            for name, tail in tails.items():
                for line in tail.lines(last=over):
                    sys.stdout.write(json.dumps([name, line], ensure_ascii=False) + "\n")
            sys.stdout.flush()
            if over or not self._request["follow"] or self._stream.read(1) == b"":  # the client is gone
                return
            over = all(
                worker["phase"] in ("over", "lost") for worker in self._known(self._run)["workers"].values()
            )
            time.sleep(0 if over else 1)

    def _stop(self) -> None:
        known = self._known(self._run)
        start = start_folder(self._run, known["record"]["start"])
        running = [
            name
            for name, each in known["workers"].items()
            if each["phase"] in ("waiting", "leased", "running")
        ]
        if running:
            _write(start / "stop.json", {"by": self._request["by"], "at": time.time()})
            self._stop_units(running, wait=False)
        _say(stopped=running)

    def _stop_units(self, workers: list[str], *, wait: bool = True) -> None:
        units = [_unit(self._run.name, name) for name in workers]
        if units:
            command = ["systemctl", "--user", "stop", *([] if wait else ["--no-block"]), *units]
            subprocess.run(command, capture_output=True)

    def _settle(self) -> None:
        """Copy complete checkpoints of the last start, and return the list of all."""
        record = _read(self._run / "run.json")
        policy = Policy.of(record["policy"])
        for name in policy.workers:
            worker = record["workers"][name]
            place = Place(self._run, worker["role"], worker["rank"])
            if place.checkpoints.exists():
                place.save_left(policy)
        _say(parts=[part.text() for part in parts_in(Folder(self._run / "kept"))])

    def _left(self) -> None:
        """Answer with what a run has left here: for each worker the ends of its reports and usage, its
        installed packages, its checkpoints, and how long its starts ran."""
        record, texts = _read(self._run / "run.json"), {}
        for name in self._request["workers"]:
            place = Place(self._run, record["workers"][name]["role"], record["workers"][name]["rank"])
            texts[name] = {
                what: _end_of(path, self._request[what])
                for what, path in (("metrics", place.metrics), ("usage", place.usage))
            }
        starts = self._run / "starts"
        seconds = sum(_read(path).get("seconds", 0.0) for path in starts.glob("*/outcome.json"))
        first = _read(start_folder(self._run, record["start"]) / record["first"] / "worker.json")
        if first.get("phase") == "running":
            seconds += time.time() - first["at"]
        _say(
            texts=texts,
            seconds=seconds,
            packages=_read(self._run / PACKAGES).get("packages", []),
            parts=[part.text() for part in parts_in(Folder(self._run / "kept"))],
        )

    def _send(self) -> None:
        """Send files of a folder of the run as a tar stream: the named ones, or all."""
        folder = self._run / self._request["folder"]
        with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
            for path in self._request["files"] or sorted(each.name for each in folder.glob("*")):
                if (folder / path).exists():
                    tar.add(folder / path, arcname=path)

    def _receive(self) -> None:
        """Receive such a stream. Manifests come last: whatever has a manifest is complete."""
        folder = self._run / self._request["folder"]
        folder.mkdir(exist_ok=True)
        command = ["tar", "-x", "-f", "-", "-C", str(folder)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=False) as tar:
            assert tar.stdin is not None
            assert tar.stderr is not None
            with contextlib.suppress(BrokenPipeError):
                shutil.copyfileobj(self._stream, tar.stdin, _CHUNK)
                tar.stdin.close()
            said = tar.stderr.read().decode(errors="replace").strip()
        if tar.returncode:
            raise CausewayError(f"{folder} cannot be written: {said}")
        _say(received=True)


class Tail:
    """Reads the output of a worker's start as the runtime writes it: files of lines with times."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 1
        self._at = 0

    def lines(self, *, last: bool) -> Iterator[str]:
        """Yield new lines. ``last``: include a line without a newline."""
        while True:
            path = self._folder / f"{self._number:06d}.log"
            following = path.with_name(f"{self._number + 1:06d}.log").exists()
            try:
                with path.open("rb") as file:
                    file.seek(self._at)
                    for line in file:
                        if not line.endswith(b"\n") and not last:
                            break
                        self._at += len(line)
                        yield line.decode("utf-8", "replace").rstrip("\r\n")
            except FileNotFoundError:
                return
            if not following:
                return
            self._number, self._at = self._number + 1, 0


def _end_of(path: Path, most: int) -> str:
    """Return at most the last ``most`` bytes of a text, from the beginning of a line; empty if the file does
    not exist."""
    try:
        with path.open("rb") as file:
            begin = max(file.seek(0, os.SEEK_END) - most, 0)
            file.seek(begin)
            data = file.read()
    except FileNotFoundError:
        return ""
    return data[data.find(b"\n") + 1 if begin else 0 :].decode("utf-8", "replace")


def _alive(run: str, worker: str, said: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded state of a worker of this machine; ``phase`` is ``lost`` if it cannot be running
    any more."""
    if said["phase"] == "over":
        return said
    if said["boot"] != boot():
        return {**said, "phase": "lost", "why": "rebooted"}
    unit = _unit(run, worker)
    shown = subprocess.run(
        ["systemctl", "--user", "show", "--property=ActiveState,Result,ExecMainStatus", unit],
        capture_output=True,
        text=True,
    )
    values = dict(line.partition("=")[::2] for line in shown.stdout.splitlines())
    if values.get("ActiveState") in ("active", "activating", "deactivating", "reloading"):
        return said
    full = values.get("ExecMainStatus") == str(DISK_FULL)
    return {**said, "phase": "lost", "why": "disk-full" if full else values.get("Result") or "gone"}


def _left_whole(run: Path, record: Mapping[str, Any]) -> bool:
    """Whether killed workers left checkpoints that ``_settle`` will copy."""
    workers = Policy.of(record["policy"]).workers
    places = [
        Place(run, record["workers"][name]["role"], record["workers"][name]["rank"]) for name in workers
    ]
    return bool(places) and all(
        place.checkpoints.is_dir()
        and any(checkpoints.is_whole(each, alive_until(place.ended)) for each in look(place.checkpoints))
        for place in places
    )


def _unit(run: str, worker: str) -> str:
    return f"causeway-{run}-{worker}.service"


def _lingers(user: str) -> bool:
    return Path("/var/lib/systemd/linger", user).exists()


def _booted() -> float:
    """Return when this machine booted."""
    with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123
        return float(next(line.split()[1] for line in file if line.startswith("btime")))


def _addresses() -> list[str]:
    """Return the addresses by which other machines may reach this one, names first."""
    found = dict.fromkeys([socket.getfqdn()])
    shown = subprocess.run(["ip", "-json", "address", "show", "up"], capture_output=True, text=True)
    if shown.returncode == 0:
        for link in json.loads(shown.stdout):
            found.update(dict.fromkeys(
                each["local"] for each in link.get("addr_info", ()) if each.get("scope") == "global"
            ))  # fmt: skip
    return [*found]


def _reachable(machine: Mapping[str, Any]) -> str | None:
    """Return the first of its addresses at which that machine's listener answers."""
    for address in machine["addresses"]:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((address, machine["port"]), 3) as connection,
        ):
            connection.settimeout(3)
            if connection.recv(64) == machine["word"].encode():
                return str(connection.getpeername()[0])
    return None


def _unpack(run: Path, digest: str) -> None:
    """Unpack the submitted code, whatever an earlier start has changed. Its digest is verified."""
    code, spool = run / "code", run / ".code.tar"
    shutil.rmtree(code, ignore_errors=True)
    code.mkdir()
    if not digest:
        return
    found = hashlib.sha256()
    try:
        with spool.open("wb") as tar, gzip.open(run / _ARCHIVE) as archive:
            while chunk := archive.read(_CHUNK):
                found.update(chunk)
                tar.write(chunk)
        if found.hexdigest() != digest:
            raise CausewayError(f"the code is not what was submitted: its SHA-256 is {found.hexdigest()}")
        # Not tarfile, whose filters Debian 12's Python lacks.
        done = subprocess.run(
            ["tar", "-x", "-f", str(spool), "-C", str(code)], capture_output=True, text=True
        )
        if done.returncode:
            raise CausewayError(f"the code can't be unpacked: {done.stderr.strip()}")
    except EOFError:
        raise CausewayError("the code is incomplete") from None
    finally:
        spool.unlink(missing_ok=True)


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size:
        chunk = source.read(min(size, _CHUNK))
        if not chunk:
            raise CausewayError("the connection ended before all was sent")
        target.write(chunk)
        size -= len(chunk)


def _wait_for(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(_PAUSE)


def _write(path: Path, values: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(values))


def _read(path: Path) -> dict[str, Any]:
    """Read a file; empty if it does not exist, or was damaged by a power cut."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return values
