"""Brings machines in line with their roles: copies what they need, runs the client, saves its report."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from infra.drive.machines import report
from infra.drive.machines.client import Fetch, install
from infra.drive.machines.payload import REPOSITORY, Payload, clear, staged
from infra.drive.push_tree import put
from infra.drive.ssh import Machine, Remote, RemoteError, UnreachedError, opened, settings
from infra.drive.vpn import gateways
from infra.errors import CausewayError, DriveError
from infra.model.software import Client
from infra.shipped_files import ROOT

RUN: Final = ROOT / "templates" / "converge" / "run.sh"

_RESOURCE: Final = re.compile(r"^ *\* (?P<resource>\S+\[.*\]) action (?P<action>\S+)")
"""A line of Chef's ``doc`` formatter: ``* package[chrony] action install (up to date)``."""

_TAIL: Final = 12
"""Lines of Chef's output that are shown of a run that failed."""

Phase: TypeAlias = Literal[
    "waiting", "connecting", "installing", "copying", "converging", "burning in", "done", "failed", "left out"
]


@dataclass(frozen=True, slots=True)
class Installing:
    """The client that machines are to have, and where its package comes from."""

    client: Client
    fetch: Fetch


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
    """Why it failed; of a burn-in that is done, why it says little."""
    log: str = ""
    """All that Chef printed."""
    kept: Path | None = None
    """The run's report, as kept beside the build."""


class Watcher(Protocol):
    """Receives the progress of machines. Called from several threads."""

    def phase(self, name: str, phase: Phase, about: str = "") -> None:
        """A machine's phase; ``about`` is the resource that Chef works on, or the test that runs."""

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
    installing: Installing | None = None,
) -> Run:
    """Converge machines, ``at_once`` at a time, in order of ``targets``. One that fails stops no other.

    ``installing``: what runs the cookbooks, brought first to machines that have another version; a why-run
    installs nothing. None leaves it alone.
    """
    if shutil.which("rsync") is None:
        raise DriveError("rsync not found on PATH; install it, here and on the machines")
    settings()  # said once, rather than by every machine
    clear(build)
    return on_each(
        {
            target.name: partial(_one, build, target, why_run, watcher, None if why_run else installing)
            for target in targets
        },
        at_once=at_once,
        watcher=watcher,
    )


def on_each(work: Mapping[str, Callable[[Cutting], Outcome]], *, at_once: int, watcher: Watcher) -> Run:
    """Do each machine's work, ``at_once`` at a time, in order. One that fails stops no other; Ctrl-C as
    `Watcher.stopping` has it."""
    asked = 0
    cutting = Cutting()

    def stop(_number: int, _frame: object) -> None:
        nonlocal asked
        asked += 1
        watcher.stopping(asked)

    def one(name: str) -> Outcome:
        if asked:
            watcher.phase(name, "left out")
            return Outcome(name, "left out", error="not started: stopped by you")
        began = time.monotonic()
        try:
            outcome = work[name](cutting)
        except CausewayError as problem:
            outcome = Outcome(name, "failed", error=str(problem))
        if outcome.phase == "failed" and asked > 1:
            outcome = replace(outcome, error="interrupted: stopped by you")
        watcher.phase(name, outcome.phase)
        return replace(outcome, seconds=time.monotonic() - began)

    with _on_ctrl_c(stop), ThreadPoolExecutor(max_workers=at_once) as pool:
        running = [pool.submit(one, name) for name in work]
        # In small steps: a signal's handler runs between them.
        while not all(each.done() for each in running):
            if asked > 1:
                cutting.cut()  # each time: some may have been between two steps before
            time.sleep(0.05)
    return Run(tuple(each.result() for each in running), stopped=asked > 0)


@contextmanager
def _on_ctrl_c(stop: Callable[[int, object], None]) -> Iterator[None]:
    """``stop`` in place of `KeyboardInterrupt`, which may come anywhere and be lost. Where Ctrl-C is ignored
    (nohup) it stays so; only the main thread may handle signals."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Cutting:
    """Ends what is at work on machines. Nothing begins after the first `cut`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: list[Callable[[], object]] = []
        self._begun = False

    @contextmanager
    def ends(self, end: Callable[[], object]) -> Iterator[None]:
        """`cut` calls ``end`` during the ``with``, once or more often. ``DriveError`` after a `cut`."""
        with self._lock:
            if self._begun:
                end()
                raise DriveError("interrupted: stopped by you")
            self._ends.append(end)
        try:
            yield
        finally:
            with self._lock:
                self._ends.remove(end)

    def cut(self) -> None:
        with self._lock:
            self._begun = True
            for end in self._ends:
                end()


def _one(
    build: Path,
    target: Target,
    why_run: bool,
    watcher: Watcher,
    installing: Installing | None,
    cutting: Cutting,
) -> Outcome:
    watcher.phase(target.name, "connecting")
    with opened(target.fqdn) as remote:
        if installing is not None:
            watcher.phase(target.name, "installing", installing.client.name)
            with cutting.ends(remote.close):
                install(remote, installing.client, installing.fetch)
        watcher.phase(target.name, "copying")
        with staged(build, target.payload) as folder:
            _copy(remote, folder, cutting)
        if target.secrets is not None and not why_run:
            write_secrets(remote.machine, target.secrets)
        watcher.phase(target.name, "converging")
        listener = _Listener(target.name, watcher)
        try:
            with cutting.ends(remote.close):
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
            raise DriveError(
                f"{target.name}: neither CINC nor Chef Infra Client is installed; "
                f"invoke enroll --nodes {target.name}"
            )
        made = report.fetch(remote, why_run=why_run)
        kind = "why-run" if why_run else "converge"
        kept = report.keep(build, target.name, kind, made.text if made else None, listener.text)
        gateway = target.payload.brings("strongswan")
        if code == 0 and gateway and not why_run and gateways.unconfirmed(remote):
            gateways.confirm(Machine(target.fqdn))
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
        first, *rest = made.exception.strip().splitlines()
        return "\n".join([f"{name}: {first}", *_printed(rest)])
    lines = [line for line in log.splitlines() if line.strip()]
    return "\n".join([f"{name}: the client ended with exit code {code}:", *lines[-_TAIL:]])


def _printed(lines: Sequence[str]) -> list[str]:
    """The end of what a command printed that failed, of the words of ``Mixlib::ShellOut`` about it."""
    inside: list[str] = []
    for line in lines:
        if line.startswith("---- End output of "):
            return inside[-_TAIL:]
        if line.startswith("---- Begin output of "):
            inside = []
        elif line.removeprefix("STDOUT:").removeprefix("STDERR:").strip():
            inside.append(line)
    return []


def _copy(remote: Remote, folder: Path, cutting: Cutting) -> None:
    """Make the machine's repository a copy of ``folder``; ``DriveError`` with rsync's own words."""
    there = f"mkdir -p {REPOSITORY} && rsync"
    command = [
        "rsync", "--archive", "--delete", "--checksum", "--no-owner", "--no-group", "--delay-updates",
        f"--rsync-path={there if remote.root else f'sudo -n mkdir -p {REPOSITORY} && sudo -n rsync'}",
        f"--rsh={shlex.join(remote.machine.client())}",
        f"{folder}/",
        f"{remote.name}:{REPOSITORY}/",
    ]  # fmt: skip
    # A group of its own: a terminal's first Ctrl-C is not for rsync.
    with (
        subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0
        ) as rsync,
        cutting.ends(rsync.terminate),
    ):
        said = rsync.communicate()[1].strip()
    if rsync.returncode == 0:
        return
    if "rsync: command not found" in said or "rsync: not found" in said:
        raise DriveError(f"{remote.name}: rsync is not installed; invoke enroll installs it")
    last = said.splitlines()[-1] if said else f"exit code {rsync.returncode}"
    raise RemoteError(f"{remote.name}: rsync failed: {last}", rsync.returncode)


def write_secrets(machine: Machine, secrets: Mapping[str, bytes]) -> None:
    """Put secrets onto a machine, each for root's eyes alone, and take away those that an earlier run
    brought and that are none now. They go through SSH and are on no disk on the way."""
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
