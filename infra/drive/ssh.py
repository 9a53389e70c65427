"""Runs commands on machines over OpenSSH, with the user's own configuration, keys, agent and jump hosts."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO, TypeAlias

from infra.errors import DriveError

CONFIG: Final = "CAUSEWAY_SSH_CONFIG"
"""The environment variable with the path of a configuration file, as for ``ssh -F``."""

TIMEOUT: Final = 30
"""Seconds for connecting and the key exchange (ssh_config(5): ConnectTimeout)."""

_UNREACHED: Final = 255
"""The exit code of ssh(1)'s own errors; a command may exit with the same code."""

_AS_ROOT: Final = 'if [ "$(id -u)" = 0 ]; then exec "$@"; else exec sudo -n -- "$@"; fi'

_HOLD: Final = """\
echo
if [ "$(id -u)" = 0 ]; then echo causeway: root; elif sudo -n true; then echo causeway: sudo; else exit 1; fi
exec cat
"""
"""A script that keeps a connection open until its standard input ends. ``echo`` ends a line that a login
script has begun."""

_OUTAGE: Final = 180
"""Seconds of network outage after which an open connection, and what runs over it, is closed."""


class UnreachedError(DriveError):
    """A machine could not be reached, or refused the login."""


class HostKeyError(UnreachedError):
    """A machine's host key differs from the known one, or is unknown."""


class _UnknownHostKeyError(HostKeyError):
    """The machine's host key is unknown, and no other key of it is known either."""


class RemoteError(DriveError):
    """A command on a machine failed. ``code`` is its exit code."""

    def __init__(self, text: str, code: int) -> None:
        self.code = code
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, by its name in the user's SSH configuration or DNS."""

    name: str
    login: str = field(default="", kw_only=True)
    """The address to connect to, ``ubuntu@192.0.2.7``; empty: its name."""
    socket: str = field(default="", kw_only=True)
    """ControlPath of ssh_config(5): the open connection that commands must use; ``none``: a new one per
    command; empty: as in the user's configuration."""

    def run(self, *command: str, stdin: bytes = b"", timeout: float = 60, shown: str = "") -> str:
        """Run a command there as root (through ``sudo -n`` for any other user), and return its output.

        Raises ``UnreachedError`` or ``RemoteError``, with the command's error, and ``shown`` in place of the
        command. ``stdin`` never appears in a message.
        """
        shown = shown or " ".join(command)[:80]
        try:
            done = subprocess.run(
                self.command(command), input=stdin, capture_output=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise UnreachedError(f"{self.name}: no answer to `{shown}` within {timeout:.0f} s") from None
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode == _UNREACHED:
            raise _unreached(self.name, said)
        if done.returncode:
            raise RemoteError(
                f"{self.name}: `{shown}` failed: {_last(said) or f'exit code {done.returncode}'}",
                done.returncode,
            )
        return done.stdout.decode(errors="replace")

    def command(self, command: Sequence[str]) -> list[str]:
        """The whole command line on this computer, for callers that communicate with the running command."""
        words = shlex.join(["sh", "-c", _AS_ROOT, "sh", *command])
        return [*self.client(), "-T", self.login or self.name, "--", words]

    def client(self) -> list[str]:
        """ssh(1) with its options, without the machine's name. It never prompts."""
        if not self.socket:
            return _ssh()
        if self.socket == "none":
            return [*_ssh(), "-o", "ControlPath=none"]
        # Where the connection has ended, ssh would open another one: by a command that fails, it cannot.
        own = [f"ControlPath={_quoted(self.socket)}", "ControlMaster=no", "ProxyCommand=false"]
        return [*_ssh(), *(f"-o{option}" for option in own)]


@dataclass(frozen=True, slots=True)
class Remote:
    """An open connection that commands share."""

    machine: Machine
    root: bool
    """Whether it logged in as root; other users go through ``sudo -n``."""
    process: subprocess.Popen[bytes] = field(repr=False)
    """The ssh(1) process that holds the connection."""

    @property
    def name(self) -> str:
        return self.machine.name

    def run(
        self, script: str, *arguments: str, out: TextIO | None = None, check: bool = True
    ) -> tuple[int, str]:
        """Run a shell script there as root; returns its exit code and output.

        ``out`` receives output and errors as they arrive. The script's standard input stays open while it
        runs, and ends with this connection or this process. Raises ``RemoteError`` for an exit code other
        than 0 if ``check``; ``UnreachedError`` if the connection is lost.
        """
        with _silence() as stdin:
            code, said, errors = self._communicate(("sh", "-c", script, "causeway", *arguments), stdin, out)
        if check and code:
            raise RemoteError(f"{self.name}: {_last(errors or said) or f'exit code {code}'}", code)
        return code, said

    def upload(self, source: Path, target: str) -> None:
        """Copy a file there, readable by root only. Raises ``RemoteError`` if that fails."""
        with source.open("rb") as stream:
            write = ("sh", "-c", 'umask 077; cat >"$1"', "causeway", target)
            code, said, errors = self._communicate(write, stream.fileno(), None)
        if code:
            why = _last(errors or said) or f"exit code {code}"
            raise RemoteError(f"{self.name}: {source.name} could not be copied ({why})", code)

    def close(self) -> None:
        """Close the connection, and end what runs over it. May be called repeatedly, and from another
        thread."""
        _signal(self.process, signal.SIGTERM)

    def _communicate(self, command: Sequence[str], stdin: int, out: TextIO | None) -> tuple[int, str, str]:
        # In its own process group, so that a terminal's Ctrl-C does not reach ssh.
        with subprocess.Popen(
            self.machine.command(command),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if out is None else subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            process_group=0,
        ) as process:
            if out is not None and process.stdout is not None:
                for line in process.stdout:
                    out.write(line)
            said, errors = process.communicate()
        if process.returncode < 0 or (process.returncode == _UNREACHED and self._has_ended()):
            raise UnreachedError(f"{self.name}: the connection was lost")
        return process.returncode, said or "", errors or ""

    def _has_ended(self) -> bool:
        """Whether the connection is closed. Its sessions end a moment earlier."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1)
        return self.process.returncode is not None


Confirm: TypeAlias = Callable[[str], bool]
"""Called with the fingerprint of an unknown host key; returns whether the user accepts it."""


@contextmanager
def opened(name: str, *, login: str = "", confirm: Confirm | None = None) -> Iterator[Remote]:
    """Open a connection to a machine, by its name in the user's SSH configuration or DNS.

    ``login`` is an address to use before the name is known, ``ubuntu@192.0.2.7``. An unknown host key is
    refused, or accepted by ``confirm`` and then remembered for the name.
    Raises ``UnreachedError`` if the machine does not answer or refuses the login, ``HostKeyError`` if its
    key differs from the known one.
    """
    with tempfile.TemporaryDirectory(prefix="causeway-ssh-") as folder:
        machine = Machine(name, login=login, socket=f"{folder}/s")
        try:
            remote = _open(machine)
        except _UnknownHostKeyError:
            if confirm is None:
                raise
            _remember(machine, confirm)
            remote = _open(machine)
        try:
            yield remote
        finally:
            _end(remote.process)


def settings() -> Path | None:
    """The configuration file named in the environment. Raises ``UnreachedError`` if it does not exist."""
    named = os.environ.get(CONFIG)
    if not named:
        return None
    if not Path(named).is_file():
        raise UnreachedError(f"{CONFIG} names {named}, which does not exist")
    return Path(named)


def _ssh() -> list[str]:
    ssh = shutil.which("ssh")
    if ssh is None:
        raise UnreachedError("ssh not found on PATH; install OpenSSH's client")
    config = settings()
    return [
        ssh,
        *(["-F", str(config)] if config else []),
        "-o", "BatchMode=yes",
        "-o", f"ConnectTimeout={TIMEOUT}",
        "-o", "ServerAliveInterval=10",
        # Settings of the user's own sessions that these must not have.
        "-o", "RemoteCommand=none",
        "-o", "ClearAllForwardings=yes",
        "-o", "ForwardX11=no",
    ]  # fmt: skip


def _quoted(path: str) -> str:
    """A path as ssh_config(5) takes it: in quotes, as a space separates arguments, and without tokens."""
    return f'"{path.replace("%", "%%")}"'


def _open(machine: Machine) -> Remote:
    """Log in, as the master of a shared connection (ssh_config(5): ControlMaster)."""
    options = {
        "ControlMaster": "yes",
        "ControlPath": _quoted(machine.socket),
        "ControlPersist": "no",
        "ServerAliveCountMax": str(_OUTAGE // 10),
        "LogLevel": "ERROR",  # `_refused` parses ssh's errors
    }
    words = [f"-o{option}={value}" for option, value in options.items()]
    command = [*_ssh(), *words, "-T", machine.login or machine.name, "--", shlex.join(["sh", "-c", _HOLD])]
    # A file rather than a pipe, which a child of ssh (a ProxyCommand) may hold open after ssh has ended.
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, process_group=0
            )
        except OSError as problem:
            raise UnreachedError(f"{machine.name}: ssh cannot be started: {problem}") from None
        try:
            user = _greeting(process)
        except BaseException:
            _end(process)
            raise
        if user:
            return Remote(machine, user == "root", process)
        _end(process)
        errors.seek(0)
        raise _refused(machine, errors.read().decode(errors="replace").replace("\r", "").strip())


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal an ssh and its children, which are a process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End an ssh, by closing its standard input, and its children."""
    if process.stdin is not None:
        process.stdin.close()
    with process:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)
            _signal(process, number)


def _greeting(process: subprocess.Popen[bytes]) -> str:
    """The user of the connection, ``root`` or ``sudo``; empty if it ended before."""
    # Logging in may take as long again as connecting, on a machine with slow name services or PAM.
    timer = threading.Timer(3 * TIMEOUT, _signal, (process, signal.SIGKILL))
    timer.daemon = True
    timer.start()
    try:
        # A login script may print lines first.
        found = (line.split() for line in process.stdout or () if line.startswith(b"causeway: "))
        return next(found, [b""])[-1].decode()
    finally:
        timer.cancel()


def _refused(machine: Machine, said: str) -> UnreachedError:
    """The error for a failed login, from the output of ssh or sudo."""
    name = machine.name
    asked = re.search(r"host key (?:is known )?for (\S+) ", said, re.IGNORECASE)
    host = asked[1] if asked else name  # a jump host's name, if it is that one's key
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said:
        shown = re.search(r"SHA256:[\w+/]+", said)
        known = re.search(r"^Offending .*key in (.+)$", said, re.MULTILINE)
        return HostKeyError(
            f"{name}: the host key of {host} has changed: it shows {shown[0] if shown else 'another one'}, "
            f"not the one in {known[1] if known else 'known_hosts'}. A machine that was set up again shows a "
            f"new one: then ssh-keygen -R {host} and `invoke enroll`. If it was not, the connection may be "
            "intercepted"
        )
    if "Host key verification failed" in said:
        return _UnknownHostKeyError(
            f"{name}: the host key of {host} is not known here; `invoke enroll` shows that of a machine in a "
            f"rack and remembers it, ssh {name} that of an instance"
        )
    if "sudo: " in said:
        why = _last(said)
        return UnreachedError(f"{name}: the user may not use sudo there without a password ({why})")
    return _unreached(name, said)


def _unreached(name: str, said: str) -> UnreachedError:
    hint = f"try: ssh {name}"
    if "Could not resolve hostname" in said:
        hint = (
            f"DNS has {name} inside the private network; from elsewhere, give its address: `HostName` in "
            f"~/.ssh/config or in the file that {CONFIG} names, or `invoke enroll --login USER@ADDRESS`"
        )
    return UnreachedError(f"{name}: can't be reached over SSH ({_last(said) or 'no answer'}); {hint}")


def _remember(machine: Machine, confirm: Confirm) -> None:
    """Show a machine's host key for confirmation, and add it to the user's known hosts. Raises
    ``HostKeyError`` if it is not confirmed."""
    target = machine.login or machine.name
    with tempfile.TemporaryDirectory(prefix="causeway-ssh-") as folder:
        shown = Path(folder, "known_hosts")
        # Also works through jump hosts, which ssh-keyscan(1) does not support.
        options = {
            "ControlPath": "none",
            "UserKnownHostsFile": _quoted(str(shown)),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "accept-new",
            "CheckHostIP": "no",
            "HashKnownHosts": "no",
            "PreferredAuthentications": "none",
        }
        _read([*_ssh(), *(f"-o{option}={value}" for option, value in options.items()), target, "true"])
        if not shown.exists():
            raise UnreachedError(f"{machine.name}: it did not show its host key; try: ssh {target}")
        lookup, kind, key = shown.read_text(encoding="ascii").split()[:3]
        _, fingerprint, *_, algorithm = _read(["ssh-keygen", "-lf", str(shown)]).split()
    if not confirm(f"{algorithm.strip('()')} {fingerprint}"):
        raise HostKeyError(f"{machine.name}: its host key, {fingerprint}, was not confirmed")
    configured = dict(line.split(" ", 1) for line in _read([*_ssh(), "-G", target]).splitlines())
    file = Path(configured["userknownhostsfile"].split()[0]).expanduser()
    if str(file) == "none":
        raise HostKeyError(
            f"{machine.name}: UserKnownHostsFile is none, so that no host key can be remembered"
        )
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The key of a machine that was reached by its address is stored under its name.
    with file.open("a", encoding="ascii") as stream:
        stream.write(f"{','.join(dict.fromkeys([lookup, machine.name]))} {kind} {key}\n")


def _read(command: Sequence[str]) -> str:
    """The output of a command, whatever its exit code."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    ).stdout


@contextmanager
def _silence() -> Iterator[int]:
    """A standard input without data that stays open while the block runs."""
    reads, writes = os.pipe()
    try:
        yield reads
    finally:
        for each in (reads, writes):
            with contextlib.suppress(OSError):
                os.close(each)


def _last(said: str) -> str:
    return said.strip().splitlines()[-1] if said.strip() else ""
