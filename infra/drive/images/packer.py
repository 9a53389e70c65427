"""Runs Packer; no other module does.

packer-py builds the command lines; the processes are run here, because it cannot stream output. Packer's
output is in its machine-readable format
(https://developer.hashicorp.com/packer/docs/commands#machine-readable-output).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from infra.drive import process
from infra.errors import DriveError, ToolError

MINIMUM: Final = (1, 6, 6)
"""The last release with the Amazon builder built in, which Debian and Ubuntu still ship."""

PLUGINS: Final = (1, 7)
"""From this version on Packer installs its builders with `packer init`."""

_GET: Final = (
    "install Packer 1.6.6 or newer: `apt install packer` on Debian and Ubuntu, or "
    "https://developer.hashicorp.com/packer/install"
)
_VERSION: Final = re.compile(r"^Packer v?(\d+)\.(\d+)\.(\d+)", re.MULTILINE)
_TAIL: Final = 200
_WRONG: Final = re.compile(r"Provisioning step had errors|errored after")
"""Packer's output after a failure."""
_WELL: Final = re.compile(r": ok: |: Adding tag: |: Tagging snapshot: ")
"""Lines that are left out of errors: successful checks, tags."""
PHASES: Final = (
    (r"Prevalidating|Querying for|Found Image ID", "looking up the source image"),
    (r"Launching a (source|spot) AWS", "launching the build instance"),
    (r"Waiting for instance", "waiting for the build instance"),
    (r"Using ssh communicator|Using SSH communicator|Waiting for SSH", "waiting for SSH"),
    (r"Provisioning with shell script: .*wait-for-cloud-init", "waiting for cloud-init"),
    (r"Uploading .* =>", "uploading cookbooks and roles"),
    (r"Provisioning with shell script: .*unpack", "unpacking"),
    (r"Provisioning with shell script: .*install-client", "installing the client"),
    (r"Provisioning with shell script: .*converge", "running the cookbooks"),
    (r"Provisioning with shell script: .*check", "checking what was built"),
    (r"Provisioning with shell script: .*minimise", "removing what is not needed"),
    (r"Provisioning with shell script: .*seal", "sealing"),
    (r"Stopping the source instance", "stopping the build instance"),
    (r"Creating (unencrypted )?AMI \S+ from instance", "making the AMI"),
    (r"Copying/Encrypting AMI", "copying it to the other regions"),
    (r"Adding tags to AMI", "tagging"),
    (r"Terminating the source AWS instance", "cleaning up"),
)
"""Pattern of a line of Packer, 1.6 or current → the phase that begins with it."""
_PATTERNS: Final = tuple((re.compile(pattern), phase) for pattern, phase in PHASES)
_SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")


def phase_of(text: str) -> str | None:
    """The phase that a line begins; None for any other line."""
    return next((phase for pattern, phase in _PATTERNS if pattern.search(text)), None)


@dataclass(frozen=True, slots=True)
class Packer:
    """A program with Packer's command line."""

    path: str
    version: tuple[int, int, int]

    @property
    def fetches_plugins(self) -> bool:
        return self.version >= PLUGINS

    def __str__(self) -> str:
        return f"packer {'.'.join(map(str, self.version))}"


@dataclass(frozen=True, slots=True)
class Said:
    """A line of Packer's output: its kind and its text."""

    kind: str
    """``say``, ``message`` or ``error`` for people; otherwise Packer's type, such as ``artifact``."""
    text: str


@dataclass(slots=True)
class Heard:
    """The output of a run."""

    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL))
    """The last lines for people."""
    failure: list[str] = field(default_factory=list)
    """The last lines before the first error; later lines are about cleaning up."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run of Packer ended."""

    exit_code: int
    interrupted: bool
    heard: Heard


class PackerError(ToolError):
    """Packer ended with an error."""


def find(environ: Mapping[str, str] | None = None) -> Packer:
    """Packer on PATH. Raises ``DriveError``, with how to install it, if there is none that can be used."""
    environ = os.environ if environ is None else environ
    path = shutil.which("packer", path=environ.get("PATH"))
    if path is None:
        raise DriveError(f"packer not found on PATH; {_GET}")
    try:
        said = subprocess.run(
            [path, "version"],
            capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
            env={**environ, "CHECKPOINT_DISABLE": "1"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise DriveError(f"{path} does not run ({problem}); {_GET}") from None
    found = _VERSION.search(said.stdout)
    if found is None:
        # Fedora and Arch ship cracklib's dictionary packer under the same name.
        raise DriveError(f"{path} is another program than HashiCorp's Packer; {_GET}")
    version = (int(found[1]), int(found[2]), int(found[3]))
    if version < MINIMUM:
        raise DriveError(f"{path} is version {'.'.join(map(str, version))}, which is too old; {_GET}")
    return Packer(path, version)


def prepare(packer: Packer, folder: Path, env: Mapping[str, str]) -> None:
    """Install the plugins that the template in ``folder`` needs. Does nothing if they are built in or
    installed."""
    if not packer.fetches_plugins:
        return
    command = _command(packer, "init", str(folder))
    finished = process.run(command, folder=folder, env={**env, "CHECKPOINT_DISABLE": "1"})
    if finished.exit_code:
        raise PackerError(("packer", "init"), finished.exit_code, finished.stderr)


def build(
    packer: Packer,
    folder: Path,
    var_files: Sequence[Path],
    *,
    log: Path,
    lock: Path,
    env: Mapping[str, str],
    cwd: Path,
    on_said: Callable[[Said], None] = lambda _said: None,
    on_beat: Callable[[], None] = lambda: None,
    on_interrupt: Callable[[int], None] = lambda _times: None,
) -> Ran:
    """Run `packer build` on the template in ``folder``. Ctrl-C makes it clean up, and is reported in the
    result.

    ``log`` receives all output; ``lock`` is locked while Packer runs, which may be longer than this process.
    """
    command = [
        sys.executable, "-I", str(_SUPERVISOR), str(log), str(lock),
        *_command(packer, "build", _template(packer, folder), var_files),
    ]  # fmt: skip
    heard = Heard()
    log.touch(mode=0o600)

    def listen(lines: Iterator[str]) -> None:
        for line in lines:
            said = parse(line)
            if said.kind in ("say", "message", "error", ""):
                heard.lines.extend(said.text.splitlines())
            if not heard.failure and (_WRONG.search(said.text) or said.kind == "error-count"):
                heard.failure = [line for line in heard.lines if not _WELL.search(line)]
            on_said(said)

    with log.open(encoding="utf-8", errors="replace") as stream:
        stream.seek(0, os.SEEK_END)
        tail = _Tail(stream)

        def beat() -> None:
            listen(tail.lines())
            on_beat()

        finished = process.run(
            command,
            folder=cwd,
            env={**env, "CHECKPOINT_DISABLE": "1", "PACKER_NO_COLOR": "1"},
            on_beat=beat,
            on_interrupt=on_interrupt,
        )
        listen(tail.lines(last=True))
    return Ran(finished.exit_code, finished.interrupted, heard)


def parse(line: str) -> Said:
    """Parse a machine-readable line, ``time,target,type,data…``. A line in another format has no kind."""
    parts = line.split(",", 3)
    if len(parts) < 4 or not parts[0].isdigit():
        return Said("", line)
    kind, data = parts[2], parts[3]
    if kind == "ui":
        kind, _, data = data.partition(",")
    return Said(kind, _unescaped(data))


def _unescaped(data: str) -> str:
    return data.replace("%!(PACKER_COMMA)", ",").replace("\\n", "\n").replace("\\r", "")


class _Tail:
    """The lines of a file that grows."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._rest = ""

    def lines(self, *, last: bool = False) -> Iterator[str]:
        """The complete lines since the last call; ``last``: also an incomplete one."""
        self._rest += self._stream.read()
        *whole, self._rest = self._rest.split("\n")
        yield from whole
        if last and self._rest:
            yield self._rest
            self._rest = ""


def _template(packer: Packer, folder: Path) -> str:
    """The template's file or folder. Packer 1.6 does not know ``packer`` blocks: it gets the one file
    without any."""
    return str(folder if packer.fetches_plugins else folder / "image.pkr.hcl")


def _command(packer: Packer, verb: str, template: str, var_files: Sequence[Path] = ()) -> list[str]:
    """The command line, built by packer-py."""
    import packerpy

    library: Any = packerpy  # no type annotations

    class Builder(library.PackerExecutable):  # type: ignore[misc]
        """packer-py, but it returns its command line instead of running it."""

        def execute_cmd(self, packer_cmd: str, template: str | None = None, **kwargs: Any) -> list[str]:
            options = self._explode_args(**kwargs)
            readable = ["-machine-readable"] if packer_cmd == "build" else []
            return [self.configuration[self.PATH], packer_cmd, *readable, *options, template or ""]

    builder = Builder(executable_path=packer.path)
    if verb == "init":
        initialised: list[str] = builder.execute_cmd("init", template)
        return initialised
    # packer-py accepts an option once; Packer takes several variable files, of which the last one wins.
    first, *others = var_files
    built: list[str] = builder.build(template, color="false", on_error="cleanup", var_file=str(first))
    return [*built[:-1], *(f"-var-file={other}" for other in others), built[-1]]
