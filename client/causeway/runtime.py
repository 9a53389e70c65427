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


class Output(threading.Thread):
    """Copies a process's output to ours, and keeps its last lines."""

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self.lines: deque[str] = deque(maxlen=200)
        self._pipe = pipe

    def run(self) -> None:
        # By lines, so that those of several workers are not mixed.
        for line in iter(self._pipe.readline, b""):
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except OSError:
                pass  # nobody reads; the work goes on
            self.lines.append(line.decode("utf-8", "replace").rstrip("\r\n")[-500:])


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

    def ended(code: int, status: Mapping[str, Any]) -> int:
        write_status(path, {"role": role, "rank": rank, "at": time.time(), **status})
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
    output = Output(process.stdout)
    output.start()
    code = wait_for(process)
    # Processes that were left behind end with their worker, and let go of its output.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    output.join(timeout=10)
    first = first_exception(hooks)
    shutil.rmtree(hooks, ignore_errors=True)
    return ended(*summary(code, stopped[0] if stopped else None, output.lines, first))


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
    raise SystemExit(main(sys.argv[1]))
