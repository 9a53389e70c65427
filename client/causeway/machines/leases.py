"""The GPUs of this machine: which there are, who has them, who waits for them, and leases on them.

A lease is a flock(2) on a file of the GPU, held by the worker's process: it ends with the process, however
that ends. The file's content names the holder. A GPU that is used by a program without a lease is not leased
either.

A waiting run has a ticket (``tickets``). A free GPU goes to the first run in the queue that it fits.

A reservation (``reserving``) is a lease, too; its owner's runs hold a second lease under it.
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
"""Retries, since checking a lease locks it for a moment."""


@dataclass(frozen=True)
class Gpu:
    """A GPU as reported by ``nvidia-smi``."""

    index: int
    uuid: str
    name: str
    memory: int
    """In MiB."""


@dataclass(frozen=True)
class State:
    """Who has a GPU."""

    holder: Mapping[str, Any]
    """What its lease says; empty without a lease."""
    reserved: Mapping[str, Any]
    """What the reservation that covers it says; empty if there is none."""
    programs: str
    """Programs that use it without a lease, described in words."""
    is_leased: bool
    """Whether it is leased by a run, or by a process that has yet to write who it is."""

    def reason(self, gpu: Gpu, user: str) -> str:
        """Explain why a user cannot have it now; empty if they can."""
        if self.reserved and self.reserved.get("user") != user:
            until = clock(self.reserved.get("until"))
            return f"GPU {gpu.index} is reserved by {self.reserved.get('user')} (until {until})"
        if not self.is_leased:
            return self.programs
        try:
            held = self.holder
            return (
                f"GPU {gpu.index} is leased by {held['user']} ({held['run']}, since {clock(held['since'])})"
            )
        except KeyError:
            return f"GPU {gpu.index} is being leased"


def gpus() -> list[Gpu]:
    """Return the GPUs of this machine; empty without ``nvidia-smi``. Raises CausewayError if that fails."""
    rows = _query("--query-gpu=index,uuid,name,memory.total")
    return [Gpu(int(index), uuid, name, int(float(memory))) for index, uuid, name, memory in rows]


def fits(gpu: Gpu, wanted: Mapping[str, Any]) -> bool:
    """Whether a GPU meets ``wanted``: ``model``, all of whose words are in the GPU's name; ``memory`` in
    bytes."""
    words = set(re.findall(r"[a-z0-9]+", gpu.name.lower()))
    # nvidia-smi reports some MiB less than the nominal size.
    enough = gpu.memory * (1 << 20) >= 0.95 * (wanted.get("memory") or 0)
    return enough and set(re.findall(r"[a-z0-9]+", (wanted.get("model") or "").lower())) <= words


def me() -> str:
    """The user's login on this machine."""
    return pwd.getpwuid(os.getuid()).pw_name


def clock(at: Any) -> str:
    """Format a time; empty if there is none."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (TypeError, ValueError, OverflowError):
        return ""


def states(found: Sequence[Gpu]) -> dict[str, State]:
    """Return GPU UUID → who has it."""
    programs = _programs()
    return {gpu.uuid: _state(gpu, programs) for gpu in found}


def taken(
    found: Sequence[Gpu],
    queue: Sequence[Mapping[str, Any]] = (),
    states_of: Mapping[str, State] | None = None,
) -> dict[str, str]:
    """Return GPU UUID → why this user cannot have it, for GPUs that are not free. ``queue``: tickets that go
    first."""
    known = states(found) if states_of is None else states_of
    reasons = {gpu.uuid: known[gpu.uuid].reason(gpu, me()) for gpu in found}
    promised: dict[str, str] = {}
    for ticket in queue:
        user = str(ticket["user"])
        fitting = [
            gpu
            for gpu in found
            if gpu.uuid not in promised and not known[gpu.uuid].reason(gpu, user) and fits(gpu, ticket)
        ]
        for gpu in fitting[: ticket["count"]]:
            since = clock(ticket["since"])
            promised[gpu.uuid] = (
                f"GPU {gpu.index} goes next to {user} ({ticket['run']}, waiting since {since})"
            )
    return {uuid: said for uuid, reason in reasons.items() if (said := reason or promised.get(uuid, ""))}


class Leases:
    """The leases of one worker, held until they are released or its process ends."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def take(
        self,
        count: int,
        wanted: Mapping[str, Any],
        holder: Mapping[str, Any],
        queue: Sequence[Mapping[str, Any]] = (),
    ) -> list[Gpu]:
        """Lease free GPUs. Raises CausewayError that names the holders of the others.

        ``holder``: what other users see: ``user``, ``run``, ``worker``, ``until``. ``queue``: tickets that go
        first.
        """
        if not count:
            return []
        every = gpus()
        found = [gpu for gpu in every if fits(gpu, wanted)]
        reasons = taken(every, queue)
        leased: list[Gpu] = []
        for gpu in found:
            if len(leased) < count and gpu.uuid not in reasons and self._take(gpu, holder):
                leased.append(gpu)
        if len(leased) < count:
            self.release()
            reasons = taken(every, queue)
            said = "; ".join(reasons[gpu.uuid] for gpu in found if gpu.uuid in reasons)
            raise CausewayError(f"{len(leased)} of {count} GPUs are free" + (f": {said}" if said else ""))
        return leased

    def keep(self) -> None:
        """Update their access times, so that cleaners of temporary files leave them alone."""
        for file in self._files:
            os.utime(file)

    def release(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []

    def _take(self, gpu: Gpu, holder: Mapping[str, Any]) -> bool:
        file = os.open(_file(gpu), os.O_RDWR)
        for _ in range(_TRIES):
            if not _locked(file):
                said = _said(file)
                if said.get("reserved") and said.get("user") == holder["user"] and not holder.get("reserved"):
                    inner = self._take_below(gpu, file, holder)
                    os.close(file)
                    return inner
                time.sleep(_PAUSE)
                continue
            if _used(gpu, _programs()):
                break
            self._hold(file, holder)
            return True
        os.close(file)
        return False

    def _take_below(self, gpu: Gpu, file: int, holder: Mapping[str, Any]) -> bool:
        """Lease a GPU that its user has reserved. ``file`` is that of the reservation, which must not end
        earlier."""
        inner = os.open(inner_file(gpu), os.O_RDWR | os.O_CREAT, 0o600)
        # Locked before it is checked: a reservation that ended in between does not count.
        if _locked(inner) and not _locked(file) and not _used(gpu, _programs()):
            self._hold(inner, holder)
            return True
        os.close(inner)
        return False

    def _hold(self, file: int, holder: Mapping[str, Any]) -> None:
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps({**holder, "since": time.time()}).encode(), 0)
        self._files.append(file)

    # For a reservation.

    def let_go(self, found: Sequence[Gpu]) -> list[Gpu]:
        """Release those leases of ``found``, in the order in which they were taken, under which no run has
        one; return the rest."""
        left, files = [], []
        for gpu, file in zip(found, self._files):  # noqa: B905  # no strict= before Python 3.10
            inner = os.open(inner_file(gpu), os.O_RDWR | os.O_CREAT, 0o600)
            if _locked(inner):
                os.close(file)
            else:
                left.append(gpu)
                files.append(file)
            os.close(inner)
        self._files = files
        return left


def folder() -> Path:
    """A folder that all users of this machine share, on a local file system."""
    for shared in _SHARED:
        if shared.is_dir() and shared.stat().st_mode & (stat.S_ISVTX | stat.S_IWOTH) == (
            stat.S_ISVTX | stat.S_IWOTH
        ):
            return everybodys(shared / "causeway-gpus")
    raise CausewayError(f"neither {' nor '.join(map(str, _SHARED))} is writable for everyone")


def everybodys(path: Path) -> Path:
    """Create a folder that everyone may write to."""
    try:
        path.mkdir()
        path.chmod(0o1777)  # the umask removed some bits
    except FileExistsError:
        pass
    return path


def inner_file(gpu: Gpu) -> Path:
    """The file that this user's runs lock on a GPU that the user has reserved."""
    return folder() / f"{gpu.uuid}.{os.getuid()}"


def _file(gpu: Gpu) -> Path:
    path = folder() / gpu.uuid
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return path
    os.fchmod(file, 0o666)
    os.close(file)
    return path


def _locked(file: int) -> bool:
    """Lock a file, unless another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(file: int) -> bool:
    """Whether a process has locked the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _said(file: int) -> dict[str, Any]:
    try:
        return dict(json.loads(os.pread(file, 4096, 0)))
    except (ValueError, TypeError):
        return {}


def _state(gpu: Gpu, programs: Mapping[str, Sequence[int]]) -> State:
    holder, reserved = _held(_file(gpu)), None
    if holder is not None and holder.get("reserved"):
        reserved = holder
        holder = _held(inner_file(gpu)) if reserved.get("user") == me() else None
    used = "" if holder is not None else _used(gpu, programs)
    return State(holder or {}, reserved or {}, used, holder is not None)


def _held(path: Path) -> dict[str, Any] | None:
    """Return what its holder wrote; None without a holder."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        return _said(file) if is_held(file) else None
    finally:
        os.close(file)


def _used(gpu: Gpu, programs: Mapping[str, Sequence[int]]) -> str:
    """Describe who uses it without a lease; empty if nobody does."""
    pids = programs.get(gpu.uuid, ())
    return f"GPU {gpu.index} is used by {', '.join(map(_owner, pids))} without a lease" if pids else ""


def _programs() -> dict[str, list[int]]:
    """Return GPU UUID → ids of the processes that compute on it."""
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
