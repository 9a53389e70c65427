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

``runtime.py --shell`` and ``--exec COMMAND…``, beside it in the same container, are a terminal and a command
in the environment that the script has.

Exit codes: the command's; 75 (EX_TEMPFAIL) where it ended because it was asked to; 78 (EX_CONFIG) where an
import failed, which trying again can't help; 128 + n where signal n ended it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
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
LINES = 20
WAIT_FOR_FIRST = 600
"""Seconds until the name of the first worker must be known."""
PART = 8 << 20
"""Bytes after which a new part of the output begins."""
_LIMIT = 4000
_HOOK = '''
"""Notes when an exception ends a program, and which: of several ranks the first is the one that matters."""

import importlib.machinery
import json
import os
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

# The one that this stands in front of.
_paths = [path for path in sys.path if os.path.abspath(path or ".") != _folder]
_next = importlib.machinery.PathFinder.find_spec("sitecustomize", _paths)
if _next is not None and _next.loader is not None:
    _next.loader.exec_module(sys.modules[__name__])
'''


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment of the command: that of this process, and what frameworks read."""
    env = dict(given)
    hosts = json.loads(env.get("CAUSEWAY_HOSTS", "{}"))
    role = env.setdefault("CAUSEWAY_ROLE", "worker")
    rank = int(env.get("CAUSEWAY_RANK") or env.get("JOB_COMPLETION_INDEX") or 0)
    env["CAUSEWAY_RANK"] = str(rank)
    env.setdefault("PYTHONUNBUFFERED", "1")
    code = env.get("CAUSEWAY_CODE")
    if code:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [code, env.get("PYTHONPATH")]))
    installed = env.get("CAUSEWAY_PYTHON")
    if installed:
        env["VIRTUAL_ENV"] = installed
        env["PATH"] = os.path.join(installed, "bin") + os.pathsep + env.get("PATH", os.defpath)
    if sum(map(len, hosts.values())) < 2:
        # Lightning and Accelerate take these variables for a run of several processes.
        return env
    env["NODE_RANK"] = str(rank)
    env["MASTER_ADDR"], env["MASTER_PORT"] = first_of(hosts).rsplit(":", 1)
    launcher = env.get("CAUSEWAY_LAUNCHER", "none")
    if launcher == "tensorflow":
        # An evaluator looks at checkpoints, beside the cluster that trains (tf.estimator, "TF_CONFIG").
        training = {name: of_role for name, of_role in hosts.items() if name != "evaluator"}
        env["TF_CONFIG"] = json.dumps({"cluster": training, "task": {"type": role, "index": rank}})
    elif launcher == "none":
        # One process a worker: what `init_process_group("env://")` reads.
        env.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(len(hosts[role])))
    return env


def first_of(hosts: Mapping[str, list[str]]) -> str:
    """``host:port`` of the first worker: the chief, else the first of the first role."""
    return next(iter(hosts.get("chief") or hosts.get("worker") or next(iter(hosts.values()))))


def wait_for_name(name: str, seconds: float = WAIT_FOR_FIRST) -> bool:
    """Until DNS knows a name: that of another pod may come later than ours."""
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


class Parts:
    """Output as files of at most ``PART`` bytes and a line: ``000001.log``. A disk that is full keeps nothing
    up."""

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
        self._pipe = pipe
        self._parts = parts

    def run(self) -> None:
        # By lines, so that those of several workers are not mixed.
        for line in iter(self._pipe.readline, b""):
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except OSError:
                pass  # nobody reads; the work goes on
            if self._parts is not None:
                self._parts.write(line if line.endswith(b"\n") else line + b"\n")
            self.lines.append(line.decode("utf-8", "replace").rstrip("\r\n")[-500:])
        if self._parts is not None:
            self._parts.close()


def first_exception(folder: str) -> dict[str, Any] | None:
    """What the hook noted of the first exception that ended a process; None without one."""
    found = []
    for name in os.listdir(folder):
        if name.endswith(".json"):
            try:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    found.append(json.load(file))
            except ValueError:
                pass  # it was killed while it wrote
    return min(found, key=lambda each: each["at"]) if found else None


def summary(
    code: int, stopped: float | None, lines: Iterable[str], first: Mapping[str, Any] | None = None
) -> tuple[int, dict[str, Any]]:
    """How the command ended: (exit code of this process, what is written down).

    ``code``: the command's, negative for a signal. ``stopped``: when it was asked to end, in seconds since
    the epoch. ``first``: of ``first_exception``; without one the last lines of the output have to do.
    """
    said: dict[str, Any] = {"lines": [line for line in lines if line.strip()][-LINES:]}
    if code < 0:
        said["signal"] = signal.Signals(-code).name
        code = 128 - code
    # What failed before it was asked to end failed by itself: where one of several workers fails, the others
    # are stopped, and that can come before the launcher of the first has ended.
    if code and stopped is not None and (first is None or first["at"] >= stopped):
        code = STOPPED
    elif code and first is not None:
        said["at"], said["lines"] = first["at"], first["lines"]
        if "rank" in first:
            said["process"] = first["rank"]
        if first["failed"] in ("ImportError", "ModuleNotFoundError"):
            code, said["reason"] = NEVER_WORKS, first["lines"][-1]
    if not code:
        said["lines"] = []
    return code, {"exit": code, **said}


def write_status(path: str, status: dict[str, Any]) -> None:
    """Writes the end down, in the size that Kubernetes keeps of a termination message."""
    text = json.dumps(status, ensure_ascii=False)
    while len(text.encode("utf-8", "replace")) > _LIMIT and status["lines"]:
        status["lines"] = status["lines"][1:]
        text = json.dumps(status, ensure_ascii=False)
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


def main(script: str) -> int:
    env = environment(os.environ)
    rank = int(env["CAUSEWAY_RANK"])
    path = env.get("CAUSEWAY_STATUS", "/dev/termination-log")
    role = env["CAUSEWAY_ROLE"]

    kept = env.get("CAUSEWAY_OUTPUT")

    def ended(code: int, status: Mapping[str, Any]) -> int:
        said = {"role": role, "rank": rank, "at": time.time(), **status}
        write_status(path, said)
        if kept:
            try:
                write_status(os.path.join(kept, "ended.json"), said)
            except OSError:
                pass  # as with output: a disk that is full keeps nothing up
        return code

    stopped: list[float] = []
    process: subprocess.Popen[bytes] | None = None

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.append(time.time())
        if env.get("CAUSEWAY_STOP"):
            with open(env["CAUSEWAY_STOP"], "w", encoding="ascii"):
                pass
        # Not poll(), which would take the end of the process away from who waits for it.
        if process is not None and process.returncode is None:
            # Who asks twice does not want to wait.
            os.killpg(process.pid, signal.SIGTERM if len(stopped) == 1 else signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)

    address = env.get("MASTER_ADDR")
    if address and not wait_for_name(address):
        return ended(1, {"exit": 1, "reason": f"the first worker, {address}, has no address", "lines": []})
    if stopped:
        return ended(STOPPED, {"exit": STOPPED, "lines": []})

    shell = ["bash", "-euo", "pipefail", "-c"] if _has("bash", env) else ["sh", "-euc"]
    hooks = tempfile.mkdtemp(prefix="causeway-")
    with open(os.path.join(hooks, "sitecustomize.py"), "w", encoding="utf-8") as file:
        file.write(_HOOK)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [hooks, env.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [*shell, script],
        cwd=env.get("CAUSEWAY_CODE") or None,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    if stopped:  # between the check above and the start
        os.killpg(process.pid, signal.SIGTERM)
    assert process.stdout is not None
    output = Output(process.stdout, Parts(kept) if kept else None)
    output.start()
    idle = (
        Idle(float(env["CAUSEWAY_IDLE"]), int(env.get("CAUSEWAY_GPUS") or 0))
        if env.get("CAUSEWAY_IDLE")
        else None
    )
    if idle is not None:
        threading.Thread(target=idle.watch, args=(process,), daemon=True).start()
    code = wait_for(process)
    # Processes that were left behind end with their worker, and let go of its output.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    output.join(timeout=10)
    first = first_exception(hooks)
    shutil.rmtree(hooks, ignore_errors=True)
    if idle is not None and idle.over:
        reason = "idle for %d s: %s" % (idle.limit, idle.measured)
        return ended(NEVER_WORKS, {"exit": NEVER_WORKS, "reason": reason, "lines": []})
    return ended(*summary(code, stopped[0] if stopped else None, output.lines, first))


class Idle:
    """Ends a worker that has nothing to do."""

    def __init__(self, limit: float, gpus: int) -> None:
        """``limit``: seconds. ``gpus``: how many it has."""
        self.limit = limit
        self.over = False
        self.measured = "its GPUs were below 5 %"
        self._nvidia_smi = shutil.which("nvidia-smi") if gpus else None
        if self._nvidia_smi is None:
            self.measured = "its processors were below 5 % of one"

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Looks until the process has ended; ends it (SIGTERM) where it has been idle for too long."""
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
        query = [str(self._nvidia_smi), "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        try:
            said = subprocess.run(query, stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
            return any(float(line) >= 5 for line in said.splitlines() if line.strip())
        except (OSError, ValueError, subprocess.SubprocessError):
            return True  # who can't be measured is left alone


def processor_seconds(session: int) -> float:
    """What all processes of this container have used but ours, or those of a session where we are in none
    (proc(5), ``/proc/pid/stat``)."""
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
            # utime, stime, and of children that were waited for: cutime, cstime
            total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def terminal_used(seconds: float) -> bool:
    """Whether something was typed or shown at a terminal of this container lately."""
    try:
        terminals = [os.path.join("/dev/pts", name) for name in os.listdir("/dev/pts") if name.isdigit()]
        # The kernel writes these times every 8 seconds at most (tty_io.c).
        return any(time.time() - os.stat(each).st_mtime < seconds + 8 for each in terminals)
    except OSError:
        return False


def converse(arguments: list[str]) -> int:
    """``--shell`` or ``--exec``: a program beside the job's, in the same environment and folder."""
    env = environment(os.environ)
    folder = env.get("CAUSEWAY_CODE")
    if folder and os.path.isdir(folder):
        os.chdir(folder)
    if arguments[0] == "--exec":
        os.execvpe(arguments[1], arguments[1:], env)  # noqa: S606
    shell = "bash" if _has("bash", env) else "sh"
    code = subprocess.call([shell], env=env)
    # Who leaves has done with a shell's run; a connection that broke ends the shell by a signal.
    if 0 <= code < 128:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "left"), "w", encoding="ascii"):
            pass
    return 0 if code >= 0 else 128 - code


def wait_for(process: subprocess.Popen[bytes]) -> int:
    """The command's end. As process 1, orphans become ours, and are reaped while we wait."""
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
