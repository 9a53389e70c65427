"""The process of the embedded AWS: started on demand, found again, stopped on request.

There is one for each user and environment. It listens on loopback only; its data is in ``server.json`` in
its folder (mode 0600). A process counts as the server only if it knows the nonce in that file, so that a
reused port or process id is not mistaken for it. Its resources are in its memory: when it ends they are
gone, while Terraform's state stays. ``check`` reports that, ``reset`` fixes it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from infra.drive.extras import require_local
from infra.drive.flock import Taken, held
from infra.errors import LocalAwsError

if TYPE_CHECKING:
    import subprocess

    from infra.localaws.control import Control

REGION: Final = "us-east-1"
"""The region of calls without one."""

_START: Final = 30.0
"""Seconds to wait for a server to start; on a laptop it takes about one."""

_STOP: Final = 10.0
_BEAT: Final = 0.02
_MODULE: Final = "infra.localaws"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    environment: str
    port: int
    pid: int
    nonce: str
    started: float
    """Start time in seconds since 1970. It had no resources then."""
    folder: Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def control(self) -> Control:
        from infra.localaws.control import Control

        return Control(self.port, self.nonce)


def log(folder: Path) -> Path:
    """The log of the server of ``folder``."""
    return folder.parent / "aws.log"


def start(folder: Path, environment: str) -> Server:
    """The server of this folder, started if needed.

    Raises ``LocalAwsError``, quoting its log, if it does not answer in time.
    """
    require_local()
    folder.mkdir(parents=True, exist_ok=True)
    if server := status(folder):
        return server
    with _alone(folder):
        if server := status(folder):  # another process was faster
            return server
        return _start(folder, environment)


def status(folder: Path) -> Server | None:
    """The server of this folder if it is running."""
    from infra.localaws.control import NotOursError

    server = _remembered(folder)
    if server is None:
        return None
    try:
        server.control.health()
    except NotOursError:
        return None
    return server


def stop(folder: Path) -> bool:
    """Stop the server of this folder and wait until it has ended. False if there was none."""
    from infra.localaws.control import NotOursError

    if not folder.is_dir():
        return False
    with _alone(folder):
        server = status(folder)
        if server is None:
            return False
        with suppress(NotOursError):  # it may end meanwhile
            server.control.stop()
        deadline = time.monotonic() + _STOP
        while _alive(server.pid):
            if time.monotonic() > deadline:
                raise LocalAwsError(
                    f"the embedded AWS of environment {server.environment} (process {server.pid}) "
                    f"does not stop; end it with: kill {server.pid}"
                )
            time.sleep(_BEAT)
        return True


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock for starting and stopping the server of this folder."""
    try:
        with held(folder / "server.lock", timeout=_START + _STOP):
            yield
    except Taken:
        raise LocalAwsError(
            f"{folder}: another run has been starting or stopping this embedded AWS"
        ) from None


def environment(server: Server, region: str = REGION) -> dict[str, str]:
    """The environment variables for programs that use this server only.

    Merge them over the user's: they also replace settings that select the user's own account, by an empty
    profile (a blank profile name is an error in boto3).
    """
    profile = str(server.folder / "profile")
    return {
        "AWS_ENDPOINT_URL": server.address,
        "AWS_ACCESS_KEY_ID": "AKIALOCALAWSLOCALAWS",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_SESSION_TOKEN": "",
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_PROFILE": "default",
        "AWS_CONFIG_FILE": profile,
        "AWS_SHARED_CREDENTIALS_FILE": profile,
        "AWS_EC2_METADATA_DISABLED": "true",
        # Connections between programs on this computer do not use the user's proxy.
        "NO_PROXY": _no_proxy(),
        "no_proxy": _no_proxy(),
    }


def inventory(server: Server) -> dict[str, dict[str, list[str]]]:
    """Region → kind of resource → ids of the server's resources; empty for a new one."""
    return server.control.inventory()


def check(server: Server, state: Path, options: str) -> None:
    """Raise ``LocalAwsError``, with a fix, if a Terraform state cannot be from this server.

    ``state`` is a ``terraform.tfstate``; ``options`` select the environment on a command line. A state that
    has resources and was written before this server started is of an earlier one, whose resources are gone.
    """
    count = _held(state)
    if not count:
        return
    written = state.stat().st_mtime
    if written >= server.started:
        return
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(written))
    many = "1 resource" if count == 1 else f"{count} resources"
    raise LocalAwsError(
        f"the embedded AWS of environment {server.environment} was stopped after {when}, and its {many} "
        f"went with it, but {state} still names them; start again with: invoke local.reset {options}"
    )


def reset(folder: Path, state: Path) -> Path | None:
    """Stop the server, and rename its state; returns the new path beside it.

    None if there was no state, or one without resources, which is kept. Nothing is deleted.
    """
    stop(folder)
    if not state.is_file() or _held(state) == 0:
        return None
    written = time.strftime("%Y%m%dT%H%M%S", time.localtime(state.stat().st_mtime))
    number = 0
    while True:
        aside = state.with_name(f"{state.name}.lost-{written}" + (f"-{number}" if number else ""))
        if not aside.exists():
            return state.rename(aside)
        number += 1


def _held(state: Path) -> int | None:
    """The number of resources in a state; None if it cannot be read."""
    try:
        rows = [row for row in json.loads(state.read_bytes())["resources"] if row["mode"] == "managed"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return sum(len(row.get("instances", ())) for row in rows)


def _start(folder: Path, environment: str) -> Server:
    import subprocess

    before = _remembered(folder)
    (folder / "profile").write_text("[default]\n", encoding="utf-8")
    command = [
        sys.executable, "-m", _MODULE,
        "--folder", str(folder), "--environment", environment,
        "--port", str(before.port if before else 0),
    ]  # fmt: skip
    with log(folder).open("ab") as lines:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=lines,
            # In its own session, so that closing the user's shell or pressing Ctrl-C does not stop it.
            start_new_session=True,
            cwd=folder,
            env={**_clean(os.environ), "PYTHONPATH": str(Path(__file__).parents[2])},
        )
    _LIVING.append(process)
    deadline = time.monotonic() + _START
    while True:
        server = status(folder)
        if server is not None and server.pid == process.pid:
            return server
        if process.poll() is not None:
            raise LocalAwsError(f"the embedded AWS exited immediately: {_last_words(folder)}")
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise LocalAwsError(f"the embedded AWS did not answer in {_START:.0f} s: {_last_words(folder)}")
        time.sleep(_BEAT)


_LIVING: list[subprocess.Popen[bytes]] = []
"""Servers that this process started: they outlive it, and it must reap those that end earlier."""


def _alive(pid: int) -> bool:
    for process in _LIVING:
        if process.pid == pid:
            return process.poll() is None
    import psutil

    try:
        # In many containers orphans are never reaped, so an ended process remains listed as a zombie.
        status: str = psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return False
    return status != psutil.STATUS_ZOMBIE


def _remembered(folder: Path) -> Server | None:
    try:
        row = json.loads((folder / "server.json").read_bytes())
        return Server(
            environment=row["environment"],
            port=row["port"],
            pid=row["pid"],
            nonce=row["nonce"],
            started=row["started"],
            folder=folder,
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _last_words(folder: Path) -> str:
    path = log(folder)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
    return "\n".join([f"see {path}", *lines])


def _clean(variables: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without variables that change defaults of boto3 or moto."""
    return {name: value for name, value in variables.items() if not name.startswith(("AWS_", "MOTO_"))}


def _no_proxy() -> str:
    given = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    return ",".join(filter(None, (given, "127.0.0.1", "localhost")))
