"""Reaches machines over the user's own ssh, with their configuration, agent and jump hosts. It never prompts.

Connections are shared (ssh_config(5), ``ControlMaster``) for a minute after the last use, unless the user's
configuration already shares them.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeVar

from causeway.errors import CausewayError, InputError, Problem, UnreachableError
from causeway.job import is_machine
from causeway.machines import kit

_T = TypeVar("_T")
_CHUNK = 1 << 20
_CURES = (
    ("Permission denied", "it must accept your key without a password: ssh-add, or ssh-copy-id {host}"),
    ("Host key verification failed", "accept its key: ssh {host}"),
    ("Could not resolve hostname", "is it in ~/.ssh/config, and is the VPN up?"),
    ("timed out", "is it running, and is the VPN up?"),
    ("Connection refused", "does sshd run there?"),
    ("No route to host", "is it running, and is the VPN up?"),
)


class Host:
    """A machine, by its name for ssh."""

    def __init__(self, name: str) -> None:
        """Raises InputError if ssh would not accept the name."""
        if problem := _wrong(name):
            raise InputError([problem])
        self.name = name

    def ask(self, verb: str, source: IO[bytes] | None = None, **request: Any) -> dict[str, Any]:
        """Send a request and return one answer. ``source``: what follows the request on stdin. Raises
        CausewayError with the machine's error."""
        with self.asking(verb, **request) as process:
            assert process.stdin is not None
            with _unless_broken():
                while source is not None and (data := source.read(_CHUNK)):
                    process.stdin.write(data)
                process.stdin.close()
            return self.answer(process)

    def answer(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Return the next line of the answer."""
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise self._fault(process)
        values: dict[str, Any] = json.loads(line)
        if "error" in values:
            raise CausewayError(f"{self.name}: {values['error']}")
        return values

    @contextmanager
    def asking(self, verb: str, **request: Any) -> Iterator[subprocess.Popen[bytes]]:
        """Send a request. Its stdin stays open, and its stdout is at the beginning of the answer."""
        words = ["ssh", *self._options, "--", self.name, shlex.join(kit.command(verb))]
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is ours: first undo what was begun on the machine
            )  # fmt: skip
        except FileNotFoundError:
            raise CausewayError("ssh not found on this machine: install OpenSSH's client") from None
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                with _unless_broken():
                    process.stdin.write(kit.stdin_of(json.dumps(request).encode() + b"\n"))
                    process.stdin.flush()
                for line in process.stdout:
                    if line.endswith(kit.MARK):
                        break
                else:
                    raise self._fault(process)
                yield process
            finally:
                with _unless_broken():
                    process.stdin.close()
                process.stdout.close()
                if process.stderr is not None:
                    process.stderr.close()
                process.terminate()

    def enter(self, run: str, worker: str, words: Sequence[str], *, terminal: bool) -> int:
        """Open a terminal, or run a command with our stdin and stdout, beside a worker; return its exit code.

        ``words``: arguments of ``causeway.machines.entering``. Raises UnreachableError if the connection
        breaks.
        """
        # The login shell may be any, so the variable is read by a known one.
        kit_of = '"${XDG_DATA_HOME:-$HOME/.local/share}/causeway/machines/runs/$0"'
        mark = "" if terminal else f"printf {shlex.quote(kit.MARK_OF_PRINTF)}; "
        there = f'{mark}exec python3 {kit_of}/kit enter {kit_of} "$@"'
        command = shlex.join(["sh", "-c", there, run, worker, *words])
        options = ["-tt" if terminal else "-T", *self._options[1:]]
        try:
            call = subprocess.call if terminal else _call_after_mark
            code = call(["ssh", *options, "--", self.name, command])
        except FileNotFoundError:
            raise CausewayError("ssh not found on this machine: install OpenSSH's client") from None
        if code == 255:
            raise UnreachableError(f"{self.name}: the connection broke")
        return code

    def connect(self, port: int) -> socket.socket:
        """Connect to a port of the loopback address on the machine (ssh(1), ``-W``)."""
        ours, theirs = socket.socketpair()
        with theirs:
            words = ["ssh", *self._options, "-W", f"127.0.0.1:{port}", "--", self.name]
            subprocess.Popen(
                words,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return ours

    @cached_property
    def address(self) -> str:
        """The address in the user's configuration."""
        return self._configured.get("hostname", self.name)

    @cached_property
    def _configured(self) -> dict[str, str]:
        try:
            done = subprocess.run(["ssh", "-G", "--", self.name], capture_output=True, text=True)
        except FileNotFoundError:
            return {}  # output of ssh when it connects
        return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())

    @cached_property
    def _options(self) -> list[str]:
        wanted = {
            "BatchMode": "yes", "ConnectTimeout": "10", "ServerAliveInterval": "15",
            # Options that the user may have configured for terminals.
            "RemoteCommand": "none", "ClearAllForwardings": "yes",
        }  # fmt: skip
        options = ["-T", *(f"-o{name}={value}" for name, value in wanted.items())]
        if self._configured.get("controlpath", "none") != "none":
            return options
        # A socket's path has at most 104 bytes on macOS, whose temporary folder's path takes up half of them.
        own = os.environ.get("XDG_RUNTIME_DIR")
        folder = Path(own, "causeway-ssh") if own else Path(f"/tmp/causeway-ssh-{os.getuid()}")  # noqa: S108
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
            raise CausewayError(f"{folder} is accessible to other users; remove it")
        path = str(folder).replace("%", "%%")
        return [*options, "-oControlMaster=auto", f'-oControlPath="{path}/%C"', "-oControlPersist=60"]

    def _fault(self, process: subprocess.Popen[bytes]) -> CausewayError:
        """Explain why there was no answer."""
        assert process.stderr is not None
        lines = process.stderr.read().decode(errors="replace").strip().splitlines()
        code, said = process.wait(), lines[-1].strip() if lines else "no answer"
        if code == 127:
            return CausewayError(f"{self.name}: python3 not found; Python 3.9 or newer is needed there")
        if code == 126 and said.startswith("causeway: python"):
            return CausewayError(
                f"{self.name}: {said.partition(': ')[2]} is too old; 3.9 or newer is needed there"
            )
        if code != 255:
            return CausewayError(f"{self.name}: {said}")
        cure = next((cure.format(host=self.name) for words, cure in _CURES if words in said), "")
        return UnreachableError(f"{self.name}: {said}" + (f"; {cure}" if cure else ""))


def _call_after_mark(words: Sequence[str]) -> int:
    """Run it with our stdin and stderr, and pass on its stdout after ``kit.MARK``; return its exit code."""
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        before = []
        for line in process.stdout:
            before.append(line)
            if line.endswith(kit.MARK):
                before.clear()
                break
        with suppress(BrokenPipeError):  # the reader is gone
            _pass_on(b"".join(before))  # without a mark, it is the refusal of a login shell
            while data := process.stdout.read1(_CHUNK):  # type: ignore[attr-defined]
                _pass_on(data)
        process.stdout.close()
        return process.wait()


def _pass_on(data: bytes) -> None:
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


def hosts_named(names: Sequence[str]) -> list[Host]:
    """Return machines by the names that the user gave. Raises InputError with all invalid ones."""
    if problems := [problem for name in names if (problem := _wrong(name))]:
        raise InputError(problems)
    return [Host(name) for name in names]


def _wrong(name: str) -> Problem | None:
    """Return what is wrong with a machine's name."""
    if is_machine(name):
        return None
    return Problem("--on", repr(name), "not a machine name", "--on titan-01,titan-02")


def at_once(hosts: Sequence[Host], ask: Callable[[Host], _T]) -> dict[str, _T]:
    """Ask all machines in parallel; return the answers by name. Raises one error with all failures."""
    answers, errors = tried(hosts, ask)
    if errors:
        kinds = {type(error) for error in errors.values()}
        kind = kinds.pop() if len(kinds) == 1 else CausewayError
        text = "\n".join(map(str, errors.values()))
        raise kind(text) if kind in (CausewayError, UnreachableError) else CausewayError(text)
    return answers


def tried(
    hosts: Sequence[Host], ask: Callable[[Host], _T]
) -> tuple[dict[str, _T], Mapping[str, CausewayError]]:
    """Ask all machines in parallel; return the answers and the failures by name."""

    def one(host: Host) -> _T | CausewayError:
        try:
            return ask(host)
        except CausewayError as error:
            return error

    with ThreadPoolExecutor(max(len(hosts), 1)) as pool:
        found = dict(zip((host.name for host in hosts), pool.map(one, hosts), strict=True))
    errors = {name: each for name, each in found.items() if isinstance(each, CausewayError)}
    return {name: each for name, each in found.items() if not isinstance(each, CausewayError)}, errors


@contextmanager
def _unless_broken() -> Iterator[None]:
    """Ignore a broken pipe: what the other end wrote before is a better error."""
    with suppress(BrokenPipeError, ConnectionResetError):
        yield
