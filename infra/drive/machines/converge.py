"""Bring machines in line with their roles: rsync what they need, run Chef there, keep what it reported."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from infra.drive.machines import report
from infra.drive.machines.connection import Remote, opened
from infra.drive.machines.payload import REPOSITORY, Payload, clear, staged
from infra.drive.ship import put
from infra.drive.ssh import Machine, RemoteError, UnreachedError, client, settings
from infra.errors import CausewayError, DriveError

RUN: Final = Path(__file__).parents[3] / "templates" / "converge" / "run.sh"

_RESOURCE: Final = re.compile(r"^ *\* (?P<resource>\S+\[.*\]) action (?P<action>\S+)")
"""A line of Chef's ``doc`` formatter: ``* package[chrony] action install (up to date)``."""

_TAIL: Final = 12
"""Lines of Chef's output that are shown of a run that failed."""

Phase: TypeAlias = Literal["waiting", "connecting", "copying", "converging", "done", "failed", "left out"]


@dataclass(frozen=True, slots=True)
class Target:
    """A machine to converge, and what it gets."""

    name: str
    fqdn: str
    """What SSH knows it by."""
    payload: Payload
    secrets: Mapping[str, bytes] | None = field(default=None, repr=False)
    """Path below ``/`` → contents; in no repository, digest or log. None leaves what is there alone."""
    run_list: str = ""
    """In place of the node's own: ``recipe[kubernetes::upgrade]``."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went on one machine."""

    name: str
    phase: Phase
    seconds: float = 0
    updated: int | None = None
    """How many resources were changed, or would have been; None where Chef did not come to report."""
    resources: int | None = None
    error: str = ""
    log: str = ""
    """All that Chef printed."""
    kept: Path | None = None
    """The run's report, as kept beside the build."""


class Watcher(Protocol):
    """Is told how machines get on. Called from several threads."""

    def phase(self, name: str, phase: Phase, about: str = "") -> None:
        """A machine's phase; ``about`` is the resource that Chef works on."""

    def stopping(self, times: int) -> None:
        """A person asked to stop. Once: no machine is begun any more. Twice: those at work are cut off."""


@dataclass(frozen=True, slots=True)
class Run:
    """How it went, machine by machine."""

    outcomes: tuple[Outcome, ...]
    stopped: bool

    @property
    def exit_code(self) -> int:
        if self.stopped:
            return 130
        return 1 if any(each.phase != "done" for each in self.outcomes) else 0


def converge(
    build: Path,
    targets: Iterable[Target],
    *,
    why_run: bool,
    at_once: int,
    watcher: Watcher,
) -> Run:
    """Converge machines, ``at_once`` at a time, in order of ``targets``. One that fails stops no other."""
    if shutil.which("rsync") is None:
        raise DriveError("there is no rsync on PATH; install it, here and on the machines")
    settings()  # said once, rather than by every machine
    asked = 0
    clear(build)
    remotes: dict[str, Remote] = {}
    lock = threading.Lock()

    def one(target: Target) -> Outcome:
        if asked:
            watcher.phase(target.name, "left out")
            return Outcome(target.name, "left out", error="not begun: you stopped")
        began = time.monotonic()
        try:
            outcome = _one(build, target, why_run, watcher, remotes, lock)
        except CausewayError as problem:
            outcome = Outcome(target.name, "failed", error=str(problem))
        finally:
            with lock:
                remotes.pop(target.name, None)
        if outcome.phase == "failed" and asked > 1:
            outcome = replace(outcome, error="cut off: you stopped")
        watcher.phase(target.name, outcome.phase)
        return replace(outcome, seconds=time.monotonic() - began)

    def cut() -> None:
        with lock:
            for remote in remotes.values():
                remote.connection.close()

    with ThreadPoolExecutor(max_workers=at_once) as pool:
        running = [pool.submit(one, target) for target in targets]
        while True:
            # Waiting in small steps keeps the main thread free to hear Ctrl-C.
            try:
                for each in running:
                    while not each.done():
                        time.sleep(0.05)
                break
            except KeyboardInterrupt:
                asked += 1
                watcher.stopping(asked)
                if asked > 1:
                    cut()
    return Run(tuple(each.result() for each in running), stopped=asked > 0)


def _one(
    build: Path,
    target: Target,
    why_run: bool,
    watcher: Watcher,
    remotes: dict[str, Remote],
    lock: threading.Lock,
) -> Outcome:
    watcher.phase(target.name, "connecting")
    with opened(target.fqdn) as remote:
        with lock:
            remotes[target.name] = remote
        watcher.phase(target.name, "copying")
        with staged(build, target.payload) as folder:
            copy(remote, folder)
        if target.secrets is not None and not why_run:
            bring(target.fqdn, target.secrets)
        watcher.phase(target.name, "converging")
        listener = _Listener(target.name, watcher)
        try:
            code, _ = remote.run(
                RUN.read_text(encoding="utf-8"),
                target.name,
                *(["--why-run"] if why_run else []),
                *(["--override-runlist", target.run_list] if target.run_list else []),
                out=listener,
                check=False,
            )
        except UnreachedError as problem:
            return Outcome(target.name, "failed", error=str(problem), log=listener.text)
        if code == 127:
            raise DriveError(f"{target.name}: there is no Chef on it; invoke enroll --nodes {target.name}")
        made = report.fetch(remote, why_run=why_run)
        kept = report.keep(build, target.name, made, listener.text, why_run=why_run)
        done = Outcome(
            target.name,
            "done" if code == 0 else "failed",
            updated=len(made.updated) if made else None,
            resources=made.total if made else None,
            log=listener.text,
            kept=kept,
        )
        if code == 0:
            return done
        return replace(done, error=_failure(target.name, code, made, listener.text))


def _failure(name: str, code: int, made: report.Report | None, log: str) -> str:
    if made and made.exception:
        return f"{name}: {made.exception.strip().splitlines()[0]}"
    lines = [line for line in log.splitlines() if line.strip()]
    return "\n".join([f"{name}: chef-client ended with exit code {code}:", *lines[-_TAIL:]])


def copy(remote: Remote, folder: Path) -> None:
    """Make the machine's repository a copy of ``folder``; ``DriveError`` with rsync's own words."""
    there = f"mkdir -p {REPOSITORY} && rsync"
    command = [
        "rsync", "--archive", "--delete", "--checksum", "--no-owner", "--no-group", "--delay-updates",
        f"--rsync-path={there if remote.root else f'sudo -n mkdir -p {REPOSITORY} && sudo -n rsync'}",
        f"--rsh={shlex.join(client())}",
        f"{folder}/",
        f"{remote.name}:{REPOSITORY}/",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode == 0:
        return
    said = done.stderr.strip()
    if "rsync: command not found" in said or "rsync: not found" in said:
        raise DriveError(f"{remote.name}: there is no rsync on it; invoke enroll installs it")
    last = said.splitlines()[-1] if said else f"exit code {done.returncode}"
    raise RemoteError(f"{remote.name}: rsync failed: {last}", done.returncode)


def bring(fqdn: str, secrets: Mapping[str, bytes]) -> None:
    """Put secrets onto a machine, each for root's eyes alone, and take away those that an earlier run
    brought and that are none now. They go through SSH and are on no disk on the way."""
    machine = Machine(fqdn)
    machine.run("install", "-d", "-m", "0700", "/etc/causeway/secrets")
    put(machine, "secrets", {path: (data, 0o600) for path, data in secrets.items()})


class _Listener(io.StringIO):
    """Reads Chef's output as it comes, and tells the watcher which resource is at work."""

    def __init__(self, name: str, watcher: Watcher) -> None:
        super().__init__()
        self._name = name
        self._watcher = watcher
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if found := _RESOURCE.match(line):
                self._watcher.phase(self._name, "converging", found["resource"])
        return super().write(text)

    @property
    def text(self) -> str:
        return self.getvalue()
