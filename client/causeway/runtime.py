"""Runs one worker: starts its command, forwards signals, and writes down how it ended.

In a pod it is process 1. It is one file that needs Python 3.8 and nothing else, as it runs in images of
everybody's: ``python3 runtime.py SCRIPT``. What it needs to know is in the environment:

``CAUSEWAY_ROLE``, ``CAUSEWAY_RANK``
    What this worker is; without a rank, ``JOB_COMPLETION_INDEX`` is it.
``CAUSEWAY_HOSTS``
    JSON: role → ``host:port`` of each of its workers, in the order of ranks.
``CAUSEWAY_LAUNCHER``
    ``none``, ``torchrun`` or ``tensorflow``.
``CAUSEWAY_STATUS``
    The file that the end is written to, at most 4,096 bytes of JSON.
``CAUSEWAY_OUTPUT``
    The folder that the output is written to besides, each line with its time, in parts; and the end, as
    ``ended.json``. Who keeps it (``causeway.keep``) may take away parts that are not the last.

``CAUSEWAY_IDLE``
    Seconds after which a worker whose GPUs do nothing is ended: by ``nvidia-smi``; without it, or without
    GPUs (``CAUSEWAY_GPUS``), by its processors. A terminal that is used counts as work.
``CAUSEWAY_GPU_INDICES``
    Those of the machine's GPUs that are this worker's, where ``nvidia-smi`` shows others, too: ``0,3``.

``CAUSEWAY_EFA``
    How many Elastic Fabric Adapters it has. Where NCCL would use none of them, for want of a plugin in the
    image, the first worker of each role says so.

``CAUSEWAY_CHECKPOINTS``
    The folder of checkpoints. Its file ``.resumed.json`` (``causeway.restoring``) says which one is resumed
    from, and becomes ``CAUSEWAY_RESUME``.
``CAUSEWAY_STOP``
    The file that is made when the worker is asked to stop.
``CAUSEWAY_STALL``, ``CAUSEWAY_METRICS``
    Seconds after which a program that does not go on is ended, of the first worker; and the file that
    ``causeway.report`` writes to.
``CAUSEWAY_RANKS``
    Set by the runtime, for ranks of a launcher: ``device:inode`` of the pipe that the command writes to.
``CAUSEWAY_USAGE``
    The file that use of processors, memory and GPUs is written to, twice a minute.

``CAUSEWAY_TRACKING_URI``, ``CAUSEWAY_TRACKED_WORKER``
    Where MLflow is, and the worker (``worker-0``) whose first rank logs there: what the others write is
    answered and left.
``CAUSEWAY_MLFLOW``, ``CAUSEWAY_MLFLOW_RUN_ID``
    Where these are set, MLflow's client is sent there: its other variables as JSON, and its run.

``runtime.py --shell`` and ``--exec COMMAND…``, beside it in the same container, are a terminal and a command
in the environment that the script has.

Exit codes: the command's; 75 (EX_TEMPFAIL) where it ended because it was asked to; 78 (EX_CONFIG) where
trying again can't help: an import failed, or the memory of its cgroup did not suffice; 124 where
it stalled; 128 + n where signal n ended it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from types import FrameType
from typing import IO, Any, Iterable, Mapping

STOPPED = 75
NEVER_WORKS = 78
STALLED = 124
"""The exit code of timeout(1)."""
LINES = 20
OUT_OF_MEMORY = "OOMKilled: it exceeded its memory limit"
"""The first word is the kubelet's for a container that is killed as a whole."""
PACKAGES = "causeway-packages.txt"
"""File of an environment built by ``install.py``: versions of its packages, without those of the image."""
WAIT_FOR_FIRST = 600
"""Seconds in which the name of the first worker has to resolve."""
PART = 8 << 20
"""Size in bytes at which a new part of the output begins."""
_NO_PROGRAM = re.compile(r"\S*python[\d.]*: (No module named |Error while finding module specification for )")
"""Python's message for ``-m`` with a missing module: there is no exception."""
_LIMIT = 4000
_DUMPED = 5
"""Seconds that writing stacks may take."""
_KILLED = 10
"""Seconds that a stalled program has to end by itself."""
_OTHERS = "/others"
"""``causeway.tracking.relay.OTHERS``."""
_LOOK, _SURVIVED = 5.0, 60.0
"""Seconds between two checks for killed processes, and seconds after which a killed process does not explain
a failure."""
_HOOK = '''
"""Notes when an exception ends a program, and which: of several ranks the first is the one that matters."""

import faulthandler
import importlib.machinery
import json
import os
import signal
import socket
import struct
import sys
import time
import traceback

_folder = os.path.dirname(os.path.abspath(__file__))


def _note(kind, value, trace, _before=sys.excepthook):
    try:
        if not issubclass(kind, KeyboardInterrupt):
            lines = "".join(traceback.format_exception(kind, value, trace)).splitlines()[-20:]
            said = {"at": time.time(), "lines": [line[:500] for line in lines], "failed": kind.__name__}
            if os.environ.get("RANK", "").isdigit():
                said["rank"] = int(os.environ["RANK"])
            path = os.path.join(_folder, "%d.json" % os.getpid())
            with open(path, "w", encoding="utf-8", errors="replace") as file:
                json.dump(said, file, ensure_ascii=False)
    finally:
        _before(kind, value, trace)


sys.excepthook = _note

# Of a launcher's ranks the first one logs.
_rank = os.environ.get("RANK", "")
_uri = os.environ.get("CAUSEWAY_TRACKING_URI")
if _uri and _rank not in ("", "0") and os.environ.get("MLFLOW_TRACKING_URI") == _uri:
    os.environ["MLFLOW_TRACKING_URI"] = _uri + "/others"

# Who is asked to stop: the program, and not what it starts for itself (workers of a DataLoader, say).
if os.environ.get("CAUSEWAY_PROGRAM") != "rank " + _rank:
    os.environ["CAUSEWAY_PROGRAM"] = "rank " + _rank
    if os.environ.get("CAUSEWAY_STALL"):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    with open(os.path.join(_folder, "%d.%s" % (os.getpid(), "rank" if _rank else "program")), "w"):
        pass
    # Ranks that share a pipe write into each other's lines. What the program sends elsewhere goes there.
    if _rank and os.environ.get("LOCAL_WORLD_SIZE", "1") != "1":
        try:
            # A pipe of its own, whose end to read it hands over: /dev/stdout of a socket can't be opened.
            with socket.socket(socket.AF_UNIX) as _runtime:
                _runtime.connect(os.path.join(_folder, "ranks"))
                _reads, _writes = os.pipe()
                _end = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", _reads))]
                _runtime.sendmsg([_rank.encode()], _end)
            for _fd in (1, 2):
                _is = os.fstat(_fd)
                if "%d:%d" % (_is.st_dev, _is.st_ino) == os.environ.get("CAUSEWAY_RANKS"):
                    os.dup2(_writes, _fd)
            os.close(_reads)
            os.close(_writes)
        except OSError:
            pass  # it writes to the pipe of all

# The one that this one precedes.
_paths = [path for path in sys.path if os.path.abspath(path or ".") != _folder]
_next = importlib.machinery.PathFinder.find_spec("sitecustomize", _paths)
if _next is not None and _next.loader is not None:
    _next.loader.exec_module(sys.modules[__name__])
'''


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the command: that of this process, and the variables that frameworks read."""
    env = dict(given)
    hosts = json.loads(env.get("CAUSEWAY_HOSTS", "{}"))
    role = env.setdefault("CAUSEWAY_ROLE", "worker")
    rank = int(env.get("CAUSEWAY_RANK") or env.get("JOB_COMPLETION_INDEX") or 0)
    env["CAUSEWAY_RANK"] = str(rank)
    env.setdefault("PYTHONUNBUFFERED", "1")
    lib = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")
    paths = [env.get("CAUSEWAY_CODE"), lib if os.path.isdir(lib) else None, env.get("PYTHONPATH")]
    if any(paths):
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    resumed = resumes(env.get("CAUSEWAY_CHECKPOINTS"))
    if resumed.get("name"):
        env["CAUSEWAY_RESUME"] = os.path.join(env["CAUSEWAY_CHECKPOINTS"], resumed["name"])
    tracking = env.get("CAUSEWAY_TRACKING_URI")
    if tracking and env.get("CAUSEWAY_MLFLOW"):
        own = {"MLFLOW_TRACKING_URI": tracking, "MLFLOW_RUN_ID": env["CAUSEWAY_MLFLOW_RUN_ID"]}
        env = {**own, **json.loads(env["CAUSEWAY_MLFLOW"]), **env}
    logs = env.get("CAUSEWAY_TRACKED_WORKER") == "%s-%d" % (role, rank)
    if tracking and not logs and env.get("MLFLOW_TRACKING_URI") == tracking:
        env["MLFLOW_TRACKING_URI"] = tracking + _OTHERS
    installed = env.get("CAUSEWAY_PYTHON")
    if installed:
        env["VIRTUAL_ENV"] = installed
        env["PATH"] = os.path.join(installed, "bin") + os.pathsep + env.get("PATH", os.defpath)
    if sum(map(len, hosts.values())) < 2:
        # Lightning and Accelerate read these variables for a run of several processes.
        return env
    env["NODE_RANK"] = str(rank)
    env["MASTER_ADDR"], env["MASTER_PORT"] = first_of(hosts).rsplit(":", 1)
    launcher = env.get("CAUSEWAY_LAUNCHER", "none")
    if launcher == "tensorflow":
        # An evaluator reads checkpoints, outside of the cluster that trains (tf.estimator, "TF_CONFIG").
        training = {name: of_role for name, of_role in hosts.items() if name != "evaluator"}
        env["TF_CONFIG"] = json.dumps({"cluster": training, "task": {"type": role, "index": rank}})
    elif launcher == "none":
        # One process for each worker: the variables of `init_process_group("env://")`.
        env.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(len(hosts[role])))
    return env


def resumes(folder: str | None) -> dict[str, Any]:
    """Return what ``causeway.restoring`` recorded: ``name``, and ``said``, lines for the user; empty if
    nothing."""
    try:
        with open(os.path.join(folder or "", ".resumed.json"), encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
            return found
    except OSError:
        return {}


def first_of(hosts: Mapping[str, list[str]]) -> str:
    """Return ``host:port`` of the first worker: the chief, else the first of the first role."""
    return next(iter(hosts.get("chief") or hosts.get("worker") or next(iter(hosts.values()))))


def wait_for_name(name: str, seconds: float = WAIT_FOR_FIRST) -> bool:
    """Wait until DNS resolves a name: that of another pod may appear later than ours."""
    until = time.monotonic() + seconds
    while True:
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            if time.monotonic() > until:
                return False
            time.sleep(1)
        else:
            return True


_LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


def with_plugin_of_nccl(env: dict[str, str]) -> list[str]:
    """Make NCCL find its EFA plugin in the image; return lines for the user if it would find none.

    NCCL loads ``libnccl-net.so``, or what ``NCCL_NET_PLUGIN`` names, in the same way as here; without a
    plugin it silently uses TCP (NCCL, "Environment Variables"). EFA's installer may install only
    ``libnccl-net-ofi.so``.
    """
    asked = env.get("NCCL_NET_PLUGIN")
    if asked == "none":
        return []
    names = [asked, "libnccl-net-%s.so" % asked] if asked else ["libnccl-net.so", "libnccl-net-ofi.so"]
    why = ""
    for name in names:
        # In a separate process: a library that crashes, or starts threads, must not affect this one.
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", _LOAD, name],
                env=env,
                capture_output=True,
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return ["cannot determine whether NCCL uses EFA: %s" % error]
        if done.returncode == 0:
            if not asked and name.endswith("-ofi.so"):
                env["NCCL_NET_PLUGIN"] = "ofi"
            return []
        why = why or (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it crashed"])[-1]
    return [
        "NCCL finds no EFA plugin in the image, and uses TCP: %s" % why,
        "the image needs libfabric and aws-ofi-nccl: see Causeway's docs/efa.md",
    ]


class Parts:
    """Writes output to files of at most ``PART`` bytes plus a line: ``000001.log``. A full disk does not stop
    the program."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._number = 0
        self._file: IO[bytes] | None = None

    def write(self, line: bytes) -> None:
        at = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + ".%06dZ " % (at % 1 * 1e6)
        try:
            if self._file is None or self._file.tell() >= PART:
                self.close()
                self._number += 1
                path = os.path.join(self._folder, "%06d.log" % self._number)
                self._file = open(path, "wb")  # noqa: SIM115, it is closed with the last line
            self._file.write(stamp.encode() + line)
            self._file.flush()
        except OSError:
            pass

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Output(threading.Thread):
    """Copies a process's output to ours, and keeps its last lines."""

    def __init__(self, pipe: IO[bytes], parts: Parts | None = None) -> None:
        super().__init__(daemon=True)
        self.lines: deque[str] = deque(maxlen=200)
        self.at = time.time()
        """When the last line arrived."""
        self._pipe = pipe
        self._parts = parts
        self._writing = threading.Lock()

    def run(self) -> None:
        # Whole lines, so that those of several workers are not mixed.
        for line in iter(self._pipe.readline, b""):
            self.take(line)

    def take(self, line: bytes) -> None:
        """Process a line of the program."""
        self.at = time.time()
        self.write(line)
        self.lines.append(line.decode("utf-8", "replace").rstrip("\r\n")[-500:])

    def write(self, line: bytes) -> None:
        """Write a line, of the program or of ours."""
        with self._writing:
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except OSError:
                pass  # the reader is gone; the work continues
            if self._parts is not None:
                self._parts.write(line if line.endswith(b"\n") else line + b"\n")

    def close(self) -> None:
        """Close after the last line."""
        with self._writing:
            if self._parts is not None:
                self._parts.close()


class Ranks(threading.Thread):
    """Reads the lines of a launcher's ranks, each of which writes to a pipe of its own. They get the prefix
    ``[rank3]:``, like PyTorch's own."""

    def __init__(self, folder: str, output: Output) -> None:
        """``folder``: that of the hook, which connects to ``ranks`` in it. Raises OSError if its path is too
        long for a socket (unix(7))."""
        super().__init__(daemon=True)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(os.path.join(folder, "ranks"))
        self._listening.listen(64)
        self._output = output
        self._readers: list[threading.Thread] = []

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return  # it was closed
            reader = threading.Thread(target=self._read, args=(connection,), daemon=True)
            self._readers.append(reader)
            reader.start()

    def _read(self, connection: socket.socket) -> None:
        try:
            with connection:
                rank, [(_, _, end)], _, _ = connection.recvmsg(16, socket.CMSG_SPACE(4))
            with os.fdopen(struct.unpack("i", end)[0], "rb") as lines:
                begin = b"[rank%d]: " % int(rank)
                for line in lines:
                    line = line if line.endswith(b"\n") else line + b"\n"
                    self._output.take(line if line.startswith(begin) else begin + line)
        except (OSError, ValueError, struct.error):
            pass  # its process was killed before it identified itself

    def join(self, timeout: float | None = None) -> None:
        """Wait for the last lines of all ranks."""
        until = time.monotonic() + (timeout or 0)
        try:
            self._listening.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # not on macOS
        super().join(timeout)
        for each in self._readers:
            each.join(max(until - time.monotonic(), 0))
        self._listening.close()


def first_exception(folder: str) -> dict[str, Any] | None:
    """Return the hook's record of the first exception that ended a process; None if there is none."""
    found = []
    for name in os.listdir(folder):
        if name.endswith(".json"):
            try:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    found.append(json.load(file))
            except ValueError:
                pass  # it was killed while writing
    return min(found, key=lambda each: each["at"]) if found else None


def oom_kills(cgroups: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> int:
    """Return how many processes of this worker's cgroup were killed for lack of memory; 0 if it has no cgroup
    of its own: a session's cgroup has other programs (Linux, cgroup-v2.rst, "memory.events")."""
    try:
        with open(own, encoding="utf-8") as file:
            path = next(line.rstrip("\n")[3:] for line in file if line.startswith("0::"))
        if path != "/" and not path.endswith(".service"):
            return 0
        with open(os.path.join(cgroups, path[1:], "memory.events"), encoding="ascii") as file:
            return int(dict(line.split() for line in file)["oom_kill"])
    except (OSError, StopIteration, KeyError, ValueError):
        return 0


class OutOfMemory(threading.Thread):
    """Records when the kernel has killed a process of this worker for lack of memory."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._kills, self._last = oom_kills(), float("-inf")

    def run(self) -> None:
        while True:
            time.sleep(_LOOK)
            self._look()

    def _look(self) -> None:
        kills = oom_kills()
        if kills > self._kills:
            self._kills, self._last = kills, time.monotonic()

    def ended_it(self) -> bool:
        """Whether a process was killed shortly before now. Whichever it was, its launcher, or the parent of a
        data loader, fails soon after. A program that survives for longer fails for another reason."""
        self._look()
        return time.monotonic() - self._last < _SURVIVED


def summary(
    code: int,
    stopped: float | None,
    lines: Iterable[str],
    first: Mapping[str, Any] | None = None,
    out_of_memory: bool = False,
) -> tuple[int, dict[str, Any]]:
    """Return how the command ended: the exit code of this process, and the status to record.

    ``code``: the command's, negative for a signal. ``stopped``: when it was asked to stop, in seconds since
    the epoch. ``first``: result of ``first_exception``; without it, the last lines of the output are used.
    ``out_of_memory``: result of ``OutOfMemory.ended_it``.
    """
    said: dict[str, Any] = {"lines": [line for line in lines if line.strip()][-LINES:]}
    if code < 0:
        said["signal"] = signal.Signals(-code).name
        code = 128 - code
    elif code > 128 and code - 128 in {*signal.Signals}:  # as a shell reports a signal
        said["signal"] = signal.Signals(code - 128).name
    # A failure before the command was asked to stop is its own: if one of several workers fails, the others
    # are stopped, and that can come before the launcher of the first has ended. A program that saves and
    # exits with 0 is not done.
    if stopped is not None and (not code or first is None or first["at"] >= stopped):
        code = STOPPED
    elif code and first is None and (missing := _NO_PROGRAM.match((said["lines"] or [""])[-1])):
        code, said["reason"] = NEVER_WORKS, missing.string
    elif code and first is not None:
        said["at"], said["lines"] = first["at"], first["lines"]
        if "rank" in first:
            said["process"] = first["rank"]
        if first["failed"] in ("ImportError", "ModuleNotFoundError"):
            code, said["reason"] = NEVER_WORKS, first["lines"][-1]
    if out_of_memory and code not in (0, STOPPED):
        code, said["reason"] = NEVER_WORKS, OUT_OF_MEMORY
    if not code:
        said["lines"] = []
    return code, {"exit": code, **said}


def write_status(path: str, status: dict[str, Any]) -> None:
    """Write the status, cut to the size that Kubernetes keeps of a termination message."""
    text = json.dumps(status, ensure_ascii=False)
    while len(text.encode("utf-8", "replace")) > _LIMIT and status["lines"]:
        status["lines"] = status["lines"][1:]
        text = json.dumps(status, ensure_ascii=False)
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


class Signals:
    """Passes SIGTERM, SIGINT and SIGHUP on to the program. A second one kills it."""

    def __init__(self, stop_file: str, hooks: str) -> None:
        """``stop_file``: created on the first signal. ``hooks``: the folder that lists programs."""
        self.at: float | None = None
        """Time of the first signal, in seconds since the epoch; None before it."""
        self.process: subprocess.Popen[bytes] | None = None
        self._stop_file = stop_file
        self._hooks = hooks
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._received)

    def _received(self, _number: int, _frame: FrameType | None) -> None:
        first = self.at is None
        self.at = self.at or time.time()
        try:
            with open(self._stop_file, "w", encoding="ascii"):
                pass
        except OSError:
            pass  # it has already ended, or the disk is full
        # Not poll(), which would reap the process before wait() does.
        if self.process is not None and self.process.returncode is None:
            if first:
                ask_to_stop(self.process.pid, self._hooks)
            else:  # a second signal does not wait
                kill(self.process.pid, self._hooks)


def main(script: str) -> int:
    env = environment(os.environ)
    hooks = tempfile.mkdtemp(prefix="causeway-")
    env.setdefault("CAUSEWAY_STOP", os.path.join(hooks, "stop"))
    try:
        code, status = _run(script, env, hooks, Signals(env["CAUSEWAY_STOP"], hooks))
        ended = {"role": env["CAUSEWAY_ROLE"], "rank": int(env["CAUSEWAY_RANK"]), "at": time.time(), **status}
        write_status(env.get("CAUSEWAY_STATUS", "/dev/termination-log"), ended)
        if env.get("CAUSEWAY_OUTPUT"):
            try:
                write_status(os.path.join(env["CAUSEWAY_OUTPUT"], "ended.json"), ended)
            except OSError:
                pass  # as with output: a full disk does not stop the program
        return code
    finally:
        shutil.rmtree(hooks, ignore_errors=True)


def _run(script: str, env: dict[str, str], hooks: str, signals: Signals) -> tuple[int, dict[str, Any]]:
    """Run the script to its end. Returns the exit code and the fields of the status."""
    address = env.get("MASTER_ADDR")
    if address and not wait_for_name(address):
        return 1, {"exit": 1, "reason": f"the first worker, {address}, has no address", "lines": []}
    if signals.at is not None:
        return STOPPED, {"exit": STOPPED, "lines": []}

    with open(os.path.join(hooks, "sitecustomize.py"), "w", encoding="utf-8") as file:
        file.write(_HOOK)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [hooks, env.get("PYTHONPATH")]))
    reads, writes = os.pipe()
    output = Output(
        os.fdopen(reads, "rb"), Parts(env["CAUSEWAY_OUTPUT"]) if env.get("CAUSEWAY_OUTPUT") else None
    )
    for line in _first_lines(env):
        output.write(("causeway: %s\n" % line).encode())
    ranks = _ranks(env, hooks, writes, output)
    memory = OutOfMemory()
    memory.start()
    process = signals.process = _start(script, env, writes)
    os.close(writes)
    if signals.at is not None:  # between the check above and the start
        os.killpg(process.pid, signal.SIGTERM)
    output.start()
    stall, idle = _watch(process, env, hooks, output)
    code = wait_for(process)
    asked = signals.at
    # Processes that were left behind end with their worker, and close its output.
    send(-process.pid, signal.SIGKILL)
    output.join(timeout=10)
    if ranks is not None:
        ranks.join(timeout=10)
    output.close()
    if idle is not None and idle.over:
        reason = "idle for %d s: %s" % (idle.limit, idle.measured)
        return NEVER_WORKS, {"exit": NEVER_WORKS, "reason": reason, "lines": []}
    if stall.over:
        reason = "stalled: %s for %d s; its stacks are in its output" % (stall.measured, stall.limit)
        return STALLED, {"exit": STALLED, "reason": reason, "lines": []}
    return summary(code, asked, output.lines, first_exception(hooks), memory.ended_it())


def _first_lines(env: dict[str, str]) -> list[str]:
    """The first lines of the output: the checkpoint to resume from, and adapters that cannot be used."""
    lines = list(resumes(env.get("CAUSEWAY_CHECKPOINTS")).get("said", ()))
    if env.get("CAUSEWAY_EFA") and env.get("MASTER_ADDR"):
        missing = with_plugin_of_nccl(env)
        lines += missing if env["CAUSEWAY_RANK"] == "0" else []
    return lines


def _ranks(env: dict[str, str], hooks: str, writes: int, output: Output) -> Ranks | None:
    """Read each rank's output separately. None if there is no socket: ranks then write to the shared pipe."""
    pipe = os.fstat(writes)
    env["CAUSEWAY_RANKS"] = "%d:%d" % (pipe.st_dev, pipe.st_ino)
    try:
        ranks = Ranks(hooks, output)
        ranks.start()
    except OSError:
        return None
    return ranks


def _start(script: str, env: Mapping[str, str], writes: int) -> subprocess.Popen[bytes]:
    # Without -u: profiles, conda's `activate` and many other scripts read variables that are not set.
    shell = ["bash", "-eo", "pipefail", "-c"] if _has("bash", env) else ["sh", "-ec"]
    return subprocess.Popen(
        # A shell that is asked to stop waits for its current command, which saves, and does not start
        # another.
        [*shell, "trap 'exit 143' TERM\n" + script],
        cwd=env.get("CAUSEWAY_CODE") or None,
        env=env,
        stdout=writes,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _watch(
    process: subprocess.Popen[bytes], env: Mapping[str, str], hooks: str, output: Output
) -> tuple[Stall, Idle | None]:
    """Start the threads that end a stalled or idle program, and the one that records its resource usage."""
    gpus = int(env.get("CAUSEWAY_GPUS") or 0)
    stall = Stall(float(env.get("CAUSEWAY_STALL") or 0), env.get("CAUSEWAY_METRICS", ""), output)
    if stall.limit and env["CAUSEWAY_RANK"] == "0":
        threading.Thread(target=stall.watch, args=(process, hooks), daemon=True).start()
    idle = Idle(float(env["CAUSEWAY_IDLE"]), gpus) if env.get("CAUSEWAY_IDLE") else None
    if idle is not None:
        threading.Thread(target=idle.watch, args=(process,), daemon=True).start()
    if env.get("CAUSEWAY_USAGE"):
        usage = Usage(env["CAUSEWAY_USAGE"], gpus)
        threading.Thread(target=usage.watch, args=(process,), daemon=True).start()
    return stall, idle


def running_programs(hooks: str, kind: str) -> list[int]:
    """Return the Python programs that the command runs, as recorded by the hook. ``kind``: ``rank`` for ranks
    of a launcher, ``program`` for others, including the launcher."""
    names = (name.partition(".") for name in os.listdir(hooks))
    pids = [int(pid) for pid, _, each in names if each == kind]
    return [pid for pid in pids if send(pid, 0)]


def send(pid: int, number: int) -> bool:
    """Send a signal; return whether the process, or the group -``pid``, existed."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def ask_to_stop(command: int, hooks: str) -> None:
    """Send SIGTERM as Kubernetes does: to the program, not to all of its processes.

    A DataLoader fails when its workers are terminated, and torchrun gives its ranks only 30 s when it is
    terminated: so only the ranks are asked, and torchrun ends with them.
    """
    asked = running_programs(hooks, "rank") or running_programs(hooks, "program")
    if not asked:
        send(-command, signal.SIGTERM)
        return
    for pid in {*asked, command}:
        send(pid, signal.SIGTERM)


def kill(command: int, hooks: str) -> None:
    """Send SIGKILL, also to ranks, which may be in sessions of their own."""
    for pid in [*running_programs(hooks, "rank"), *running_programs(hooks, "program")]:
        send(pid, signal.SIGKILL)
    send(-command, signal.SIGKILL)


class Stall:
    """Ends a program that makes no progress."""

    def __init__(self, limit: float, metrics: str, output: Output) -> None:
        """``limit``: seconds; 0 disables it. ``metrics``: the file that ``causeway.report`` writes to."""
        self.limit = limit
        self.over = False
        self.measured = "no output"
        self._metrics = metrics
        self._output = output

    def watch(self, process: subprocess.Popen[bytes], hooks: str) -> None:
        """Watch the process until it has ended; if it stalls, write its stacks and end it."""
        since = time.time()
        while process.returncode is None:
            time.sleep(max(min(self.limit / 4, 30.0), 0.2))
            if time.time() - max(since, self._last()) < self.limit or process.returncode is not None:
                continue
            self.over = True
            # The programs of the ranks, not the launcher.
            for pid in running_programs(hooks, "rank") or running_programs(hooks, "program"):
                send(pid, signal.SIGUSR1)
            time.sleep(_DUMPED)
            ask_to_stop(process.pid, hooks)
            until = time.monotonic() + _KILLED
            while process.returncode is None and time.monotonic() < until:
                time.sleep(0.2)
            if process.returncode is None:
                kill(process.pid, hooks)
            return

    def _last(self) -> float:
        """Return when it last made progress, in seconds since the epoch."""
        try:
            at = os.stat(self._metrics).st_mtime
        except OSError:
            return self._output.at
        self.measured = "no causeway.report"
        return at


class Idle:
    """Ends a worker that is idle."""

    def __init__(self, limit: float, gpus: int) -> None:
        """``limit``: seconds. ``gpus``: its number of GPUs."""
        self.limit = limit
        self.over = False
        self.measured = "its GPUs were below 5 %"
        self._nvidia_smi = shutil.which("nvidia-smi") if gpus else None
        if self._nvidia_smi is None:
            self.measured = "its processors were below 5 % of one"

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Watch the process until it has ended; send SIGTERM if it has been idle for too long."""
        every = max(min(self.limit / 4, 30.0), 0.5)
        since, spent = time.monotonic(), processor_seconds(process.pid)
        while process.returncode is None:
            time.sleep(every)
            now, before = time.monotonic(), spent
            spent = processor_seconds(process.pid)
            busy = self._gpus_busy() if self._nvidia_smi else spent - before > 0.05 * every
            if busy or terminal_used(every):
                since = now
            elif now - since >= self.limit and process.returncode is None:
                self.over = True
                os.killpg(process.pid, signal.SIGTERM)
                return

    def _gpus_busy(self) -> bool:
        try:
            return any(float(use) >= 5 for (use,) in query_gpus(str(self._nvidia_smi), "utilization.gpu"))
        except (OSError, ValueError, subprocess.SubprocessError):
            return True  # what cannot be measured is left alone


class Usage:
    """Records a worker's resource usage, a line of JSON for each measurement. What cannot be measured is left
    out, and errors here do not affect the program."""

    EVERY = 30.0
    """Seconds between two measurements."""

    def __init__(self, path: str, gpus: int, cgroup: str = "/sys/fs/cgroup") -> None:
        """``gpus``: its number of GPUs. ``cgroup``: its own, with cgroup v2."""
        self._path = path
        self._cgroup = cgroup
        self._nvidia_smi = shutil.which("nvidia-smi") if gpus else None

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Measure until the process has ended: soon after its start, since it may be short, then every
        ``EVERY`` seconds."""
        at, spent, pause = time.monotonic(), self._spent(process.pid), 2.0
        try:
            self._write(self._machine())
            while process.returncode is None:
                time.sleep(pause)
                now, used = time.monotonic(), self._spent(process.pid)
                sample = {"at": time.time(), "cpus": round(max(used - spent, 0.0) / (now - at), 3)}
                at, spent, pause = now, used, self.EVERY
                self._write({**sample, **self._memory(), **self._gpus()})
        except (OSError, ValueError):
            return

    def _write(self, values: Mapping[str, Any]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def _spent(self, session: int) -> float:
        """Return processor seconds so far (Linux, cgroup-v2.rst, "cpu.stat")."""
        usage = self._cgroup_field("cpu.stat", "usage_usec") if self._is_limited() else None
        return processor_seconds(session) if usage is None else usage / 1e6

    def _memory(self) -> dict[str, int]:
        """Return bytes, without files that the kernel can reclaim, as the kubelet counts them."""
        if not self._is_limited():
            return {}
        with open(os.path.join(self._cgroup, "memory.current"), encoding="ascii") as file:
            return {"memory": int(file.read()) - (self._cgroup_field("memory.stat", "inactive_file") or 0)}

    def _is_limited(self) -> bool:
        """Whether the cgroup is the worker's: that of a whole machine lacks this file."""
        return os.path.exists(os.path.join(self._cgroup, "memory.current"))

    def _cgroup_field(self, name: str, field: str) -> int | None:
        with open(os.path.join(self._cgroup, name), encoding="ascii") as file:
            found = dict(line.split() for line in file)
        return int(found[field]) if field in found else None

    def _machine(self) -> dict[str, Any]:
        """Return the models of its GPUs and the driver's version; empty without GPUs."""
        rows = self._ask("name", "driver_version")
        return {"models": [row[0] for row in rows], "driver": rows[0][1] if rows else ""}

    def _gpus(self) -> dict[str, Any]:
        """Return for each GPU the percentage of time that it was busy, and its used memory in MiB."""
        rows = self._ask("utilization.gpu", "memory.used", "memory.total")
        if not rows:
            return {}
        values = [[_number(text) for text in row] for row in rows]
        return {"gpus": [{"use": use, "memory": memory, "total": total} for use, memory, total in values]}

    def _ask(self, *fields: str) -> list[list[str]]:
        """Return a row for each GPU. A program that fails is not called again."""
        if self._nvidia_smi is None:
            return []
        try:
            rows = query_gpus(self._nvidia_smi, *fields)
        except (OSError, subprocess.SubprocessError):
            self._nvidia_smi = None
            return []
        return [row for row in rows if len(row) > 1]


def query_gpus(program: str, *fields: str) -> list[list[str]]:
    """Return a row for each GPU of the worker, from ``nvidia-smi``. Raises OSError, SubprocessError."""
    query = [program, "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]
    indices = os.environ.get("CAUSEWAY_GPU_INDICES")
    if indices:
        query.append("--id=" + indices)
    said = subprocess.run(query, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    lines = filter(str.strip, said.decode("utf-8", "replace").splitlines())
    return [[each.strip() for each in line.split(",")] for line in lines]


def _number(text: str) -> float | None:
    """Parse a number; None for what a model does not measure, ``[N/A]``."""
    try:
        return float(text)
    except ValueError:
        return None


def processor_seconds(session: int) -> float:
    """Return the processor seconds of all other processes of this container, or, outside of a container, of a
    session (proc(5), ``/proc/pid/stat``)."""
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            with open("/proc/%s/stat" % pid, "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if os.getpid() == 1 or int(fields[3]) == session:
            # utime, stime, and those of reaped children: cutime, cstime
            total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def terminal_used(seconds: float) -> bool:
    """Whether something was typed or printed within ``seconds`` in a terminal of this container, or of this
    user."""
    try:
        found = [os.stat(os.path.join("/dev/pts", name)) for name in os.listdir("/dev/pts") if name.isdigit()]
        own = [each for each in found if os.getpid() == 1 or each.st_uid == os.getuid()]
        # The kernel updates these times at most every 8 seconds (tty_io.c).
        return any(time.time() - each.st_mtime < seconds + 8 for each in own)
    except OSError:
        return False


def converse(arguments: list[str]) -> int:
    """Run ``--shell`` or ``--exec``: a program beside the job's, in the same environment and folder."""
    env = environment(os.environ)
    folder = env.get("CAUSEWAY_CODE")
    if folder and os.path.isdir(folder):
        os.chdir(folder)
    if arguments[0] == "--exec":
        os.execvpe(arguments[1], arguments[1:], env)  # noqa: S606
    shell = "bash" if _has("bash", env) else "sh"
    code = subprocess.call([shell], env=env)
    # Exiting a shell means that its run is no longer needed; if the connection broke, a signal ends the
    # shell.
    if 0 <= code < 128:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "left"), "w", encoding="ascii"):
            pass
    return 0 if code >= 0 else 128 - code


def wait_for(process: subprocess.Popen[bytes]) -> int:
    """Wait for the command's end. Process 1 adopts orphans, and reaps them meanwhile."""
    if os.getpid() != 1:
        return process.wait()
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == process.pid:
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            process.returncode = code
            return code


def _has(program: str, env: Mapping[str, str]) -> bool:
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in folders)


if __name__ == "__main__":
    raise SystemExit(converse(sys.argv[1:]) if sys.argv[1].startswith("--") else main(sys.argv[1]))
