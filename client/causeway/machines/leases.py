"""GPUs of this machine: which there are, who has them, and leases on them.

A lease is a flock(2) on a file of the GPU, held by the worker's process: it ends with the process, however
that ends. The file says who holds it. A GPU that runs a program without a lease is not taken either.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causeway.errors import CausewayError

_SHARED = (Path("/run/lock"), Path("/tmp"))  # noqa: S108  # a machine has the first, or everybody the second
_TRIES, _PAUSE = 20, 0.1
"""A look at a lease holds it for a moment."""


@dataclass(frozen=True)
class Gpu:
    """As ``nvidia-smi`` has it."""

    index: int
    uuid: str
    name: str
    memory: int
    """MiB."""


def gpus() -> list[Gpu]:
    """Those of this machine; none without ``nvidia-smi``. CausewayError if that fails."""
    rows = _query("--query-gpu=index,uuid,name,memory.total")
    return [Gpu(int(index), uuid, name, int(float(memory))) for index, uuid, name, memory in rows]


def fits(gpu: Gpu, wanted: Mapping[str, Any]) -> bool:
    """``wanted``: ``model``, all of whose words are in the GPU's name; ``memory``, in bytes."""
    words = set(re.findall(r"[a-z0-9]+", gpu.name.lower()))
    # nvidia-smi shows some MiB less than the size that a GPU is sold with.
    enough = gpu.memory * (1 << 20) >= 0.95 * (wanted.get("memory") or 0)
    return enough and set(re.findall(r"[a-z0-9]+", (wanted.get("model") or "").lower())) <= words


def taken(found: Sequence[Gpu]) -> dict[str, str]:
    """UUID → who has it, of those that are not free."""
    programs = _programs()
    reasons = {gpu.uuid: _leased(gpu) or _used(gpu, programs) for gpu in found}
    return {uuid: reason for uuid, reason in reasons.items() if reason}


class Leases:
    """Those of one worker, until they are released or its process ends."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def take(self, count: int, wanted: Mapping[str, Any], holder: Mapping[str, str]) -> list[Gpu]:
        """Leases GPUs that are free. CausewayError that names who has the others.

        ``holder``: what others see of it: ``user``, ``run``, ``worker``.
        """
        if not count:
            return []
        found = [gpu for gpu in gpus() if fits(gpu, wanted)]
        leased: list[Gpu] = []
        for gpu in found:
            if len(leased) < count and self._take(gpu, holder):
                leased.append(gpu)
        if len(leased) < count:
            self.release()
            reasons = taken(found)
            said = "; ".join(reasons[gpu.uuid] for gpu in found if gpu.uuid in reasons)
            raise CausewayError(f"{len(leased)} of {count} GPUs are free" + (f": {said}" if said else ""))
        return leased

    def keep(self) -> None:
        """Marks them as used, for what clears folders of temporary files."""
        for file in self._files:
            os.utime(file)

    def release(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []

    def _take(self, gpu: Gpu, holder: Mapping[str, str]) -> bool:
        file = os.open(_file(gpu), os.O_RDWR)
        for _ in range(_TRIES):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_PAUSE)
                continue
            if _used(gpu, _programs()):
                break
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps({**holder, "since": time.time()}).encode(), 0)
            self._files.append(file)
            return True
        os.close(file)
        return False


def _folder() -> Path:
    """Everybody's of this machine, and none of a file server's."""
    for shared in _SHARED:
        if shared.is_dir() and shared.stat().st_mode & (stat.S_ISVTX | stat.S_IWOTH) == (
            stat.S_ISVTX | stat.S_IWOTH
        ):
            folder = shared / "causeway-gpus"
            try:
                folder.mkdir()
                folder.chmod(0o1777)  # the umask took some of it
            except FileExistsError:
                pass
            return folder
    raise CausewayError(f"neither {' nor '.join(map(str, _SHARED))} can be written to by everybody")


def _file(gpu: Gpu) -> Path:
    path = _folder() / gpu.uuid
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return path
    os.fchmod(file, 0o666)
    os.close(file)
    return path


def _leased(gpu: Gpu) -> str:
    """Who leases it, in words; empty for nobody."""
    file = os.open(_file(gpu), os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            held = json.loads(os.pread(file, 4096, 0))
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(held["since"]))
            return f"GPU {gpu.index} is leased by {held['user']} ({held['run']}, since {since})"
        except (ValueError, KeyError, TypeError):
            return f"GPU {gpu.index} is being leased"
    else:
        return ""
    finally:
        os.close(file)


def _used(gpu: Gpu, programs: Mapping[str, Sequence[int]]) -> str:
    """Who uses it without a lease, in words; empty for nobody."""
    pids = programs.get(gpu.uuid, ())
    return f"GPU {gpu.index} is used by {', '.join(map(_owner, pids))} without a lease" if pids else ""


def _programs() -> dict[str, list[int]]:
    """UUID → process ids of programs that compute on it."""
    found: dict[str, list[int]] = {}
    for uuid, pid in _query("--query-compute-apps=gpu_uuid,pid"):
        found.setdefault(uuid, []).append(int(pid))
    return found


def _owner(pid: int) -> str:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
        return f"{pwd.getpwuid(uid).pw_name} (process {pid})"
    except (OSError, KeyError):
        return f"process {pid}"


def _query(what: str) -> list[list[str]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    done = subprocess.run([program, what, "--format=csv,noheader,nounits"], capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or [f"exit code {done.returncode}"]
        raise CausewayError(f"nvidia-smi: {said[-1]}")
    return [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
