"""The process of the embedded AWS: started when it is needed, found again, stopped when asked.

There is one for each user and environment. It listens on loopback only; its data is in ``server.json`` in its
folder (mode 0600), and only a process that knows the nonce written there is taken for it, so that neither a
port nor a process id that was given to somebody else can mislead us. Its resources live in its memory: when
it ends they are gone, while Terraform's state stays. ``check`` reports that, ``reset`` fixes it.
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
"""The region of calls that name none."""

_START: Final = 30.0
"""Seconds a server may take to answer; on a laptop it takes about one."""

_STOP: Final = 10.0
_BEAT: Final = 0.02
_MODULE: Final = "infra.localaws"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answered."""

    environment: str
    port: int
    pid: int
    nonce: str
    started: float
    """Seconds since 1970. Its cloud was empty then."""
    folder: Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def control(self) -> Control:
        from infra.localaws.control import Control

        return Control(self.port, self.nonce)


def log(folder: Path) -> Path:
    """Where the server of ``folder`` writes what goes wrong."""
    return folder.parent / "aws.log"


def start(folder: Path, environment: str) -> Server:
    """The server of this folder, started if there is none.

    ``LocalAwsError`` if it does not answer in time; its log is named and quoted.
    """
    require_local()
    folder.mkdir(parents=True, exist_ok=True)
    if server := status(folder):
        return server
    with _alone(folder):
        if server := status(folder):  # somebody else was faster
            return server
        return _start(folder, environment)


def status(folder: Path) -> Server | None:
    """The server of this folder if it runs."""
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
    """End the server of this folder and wait until it has. False if there was none."""
    from infra.localaws.control import NotOursError

    if not folder.is_dir():
        return False
    with _alone(folder):
        server = status(folder)
        if server is None:
            return False
        with suppress(NotOursError):  # it may go while we ask
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
    """Nobody else starts or stops the server of this folder meanwhile."""
    try:
        with held(folder / "server.lock", timeout=_START + _STOP):
            yield
    except Taken:
        raise LocalAwsError(
            f"{folder}: another run has been starting or stopping this embedded AWS"
        ) from None


def environment(server: Server, region: str = REGION) -> dict[str, str]:
    """What a program needs in its environment to talk to this server, and to nothing else.

    Lay it over the user's: it also takes away what would lead to the user's own account, by an empty profile
    of its own (a blank name of a profile is an error to boto3).
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
        # No proxy of the user's stands between two programs of this machine.
        "NO_PROXY": _no_proxy(),
        "no_proxy": _no_proxy(),
    }


def inventory(server: Server) -> dict[str, dict[str, list[str]]]:
    """Region → kind of resource → ids of what the cloud holds; empty for a fresh one."""
    return server.control.inventory()


def check(server: Server, state: Path, options: str) -> None:
    """``LocalAwsError``, with what to do, if a Terraform state can't be that of this cloud.

    ``state`` is a ``terraform.tfstate``, ``options`` name the environment on a command line. A state that
    was written before this cloud was born, and holds resources, speaks of a cloud that is gone.
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
    """Stop the server, and move the state of its cloud aside: to a file beside it that is named in return.

    None if there was no state, or one of nothing, which stays. Nothing is deleted.
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
    """How many resources a state holds; None where it can't be read as one."""
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
            # A session of its own: the end of the user's shell or a Ctrl-C there does not reach it.
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
"""Those that this process started: they outlive it, and while it lives it must collect them when they end."""


def _alive(pid: int) -> bool:
    for process in _LIVING:
        if process.pid == pid:
            return process.poll() is None
    import psutil

    try:
        # Where nobody collects orphans, as in many containers, one that has ended stays on the list.
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
    """The user's environment without what would turn boto3 or moto from their defaults."""
    return {name: value for name, value in variables.items() if not name.startswith(("AWS_", "MOTO_"))}


def _no_proxy() -> str:
    given = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    return ",".join(filter(None, (given, "127.0.0.1", "localhost")))
