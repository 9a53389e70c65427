"""Fabric's connections to machines, as OpenSSH would make them: same configuration file, same known hosts.

Left to itself Fabric trusts any host key. Here a key must be known, under the name that ssh(1) would look up.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

from infra.drive.ssh import RemoteError, UnreachedError, settings

if TYPE_CHECKING:
    from fabric import Connection

SSH_PORT: Final = 22

TIMEOUT: Final = 30
"""Seconds until a machine has taken the connection, and again until it has shown its host key."""

_KEEPALIVE: Final = 15
"""Seconds of silence after which a machine is asked whether it is still there."""


class HostKeyError(UnreachedError):
    """A machine showed another host key than the known one, or one that nobody knows."""


@dataclass(frozen=True, slots=True)
class Remote:
    """An open connection."""

    name: str
    connection: Connection
    root: bool
    """Whether it logged in as root; everybody else goes through ``sudo -n``."""

    def run(
        self, script: str, *arguments: str, out: TextIO | None = None, check: bool = True
    ) -> tuple[int, str]:
        """A shell script there, as root; its exit code and what it printed. ``out`` gets that as it comes.

        The script's standard input stays open for as long as this connection. ``RemoteError`` for an exit
        code other than 0, unless that is not ``check``-ed; ``UnreachedError`` when the machine is lost.
        """
        import shlex

        import paramiko
        from invoke.exceptions import CommandTimedOut, ThreadException

        words = [*([] if self.root else ["sudo", "-n", "--"]), "sh", "-c", script, "causeway", *arguments]
        try:
            done = self.connection.run(
                shlex.join(words), hide=True, warn=True, in_stream=False, out_stream=out, err_stream=out
            )
        except (OSError, EOFError, paramiko.SSHException, ThreadException, CommandTimedOut) as problem:
            raise UnreachedError(f"{self.name}: the connection was lost ({_reason(problem)})") from None
        if done.exited is None or done.exited < 0:
            raise UnreachedError(f"{self.name}: the connection was lost")
        if check and done.exited:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise RemoteError(f"{self.name}: {said[-1] if said else f'exit code {done.exited}'}", done.exited)
        return done.exited, done.stdout

    def upload(self, source: Path, target: str) -> None:
        """Copy a file there by SFTP, for the user who logged in. ``RemoteError`` where that fails."""
        import paramiko

        try:
            self.connection.put(str(source), target)
        except (OSError, EOFError, paramiko.SSHException) as problem:
            why = f"{self.name}: {source.name} could not be copied ({_reason(problem)})"
            raise RemoteError(why, 1) from None


Confirm: TypeAlias = Callable[[str], bool]
"""Asked whether a host key that nobody knows, told by its fingerprint, is the machine's."""


@contextmanager
def opened(name: str, *, login: str = "", confirm: Confirm | None = None) -> Iterator[Remote]:
    """A connection to a machine, by the name that the user's SSH configuration or DNS knows.

    ``login`` is where it can be reached before that, ``ubuntu@192.0.2.7``. A key that is not known is
    refused, or ``confirm``-ed and then remembered for the name.
    ``UnreachedError`` when it does not answer or does not let us in, ``HostKeyError`` when it is not who it
    was.
    """
    import paramiko

    connection = _connection(name, login or name, confirm)
    try:
        try:
            connection.open()
        except paramiko.BadHostKeyException as problem:
            raise HostKeyError(
                f"{name}: its host key has changed: it shows {fingerprint(problem.key)}, known is "
                f"{fingerprint(problem.expected_key)}. A machine that was set up again shows a new one: then "
                f"ssh-keygen -R {name} and `invoke enroll`. If it was not, somebody stands between you"
            ) from None
        except paramiko.AuthenticationException:
            raise UnreachedError(
                f"{name}: none of your keys was taken for {connection.user}; try: ssh {name}"
            ) from None
        except (OSError, EOFError, paramiko.SSHException) as problem:
            raise UnreachedError(
                f"{name}: can't be reached over SSH ({_reason(problem)}); try: ssh {name}"
            ) from None
        transport = connection.client.get_transport()
        if transport is not None:
            transport.set_keepalive(_KEEPALIVE)
        remote = Remote(name, connection, root=False)
        yield Remote(name, connection, root=_is_root(remote))
    finally:
        connection.close()


def _is_root(remote: Remote) -> bool:
    done = remote.connection.run("id -u", hide=True, warn=True, in_stream=False)
    if done.stdout.strip() == "0":
        return True
    if remote.connection.run("sudo -n true", hide=True, warn=True, in_stream=False).exited:
        raise UnreachedError(
            f"{remote.name}: {remote.connection.user} may not use sudo without a password there"
        )
    return False


def _connection(name: str, login: str, confirm: Confirm | None) -> Connection:
    from fabric import Config, Connection
    from paramiko import SSHException

    path = settings()
    try:
        config = Config(runtime_ssh_path=str(path) if path else None, lazy=False)
        made = Connection(login, config=config, connect_timeout=TIMEOUT)
    except (SSHException, OSError, ValueError) as problem:
        raise UnreachedError(f"{name}: its SSH configuration can't be used: {problem}") from None
    made.connect_kwargs.setdefault("banner_timeout", TIMEOUT)
    made.connect_kwargs.setdefault("auth_timeout", 2 * TIMEOUT)
    if str(made.ssh_config.get("identitiesonly", "no")).lower() == "yes":
        made.connect_kwargs.update(allow_agent=False, look_for_keys=False)
    _trust(made, name, confirm)
    return made


def _trust(connection: Connection, name: str, confirm: Confirm | None) -> None:
    """Have a connection take the host keys that OpenSSH would take, and no other.

    ssh_config(5): ``UserKnownHostsFile``, ``GlobalKnownHostsFile``, ``HostKeyAlias``,
    ``StrictHostKeyChecking accept-new``.
    """
    from paramiko.hostkeys import HostKeys

    known = HostKeys()
    files = known_hosts(connection)
    for path in files:
        if path.is_file():
            known.load(str(path))
    shown = lookup_name(connection)
    plain = connection.host if connection.port == SSH_PORT else f"[{connection.host}]:{connection.port}"
    for kind, key in (known.lookup(shown) or {}).items():
        # Under the name that paramiko asks for, whatever OpenSSH calls it.
        connection.client.get_host_keys().add(plain, kind, key)
    strict = str(connection.ssh_config.get("stricthostkeychecking", "ask")).lower()
    if strict == "accept-new":
        confirm = _anyone
    # The key of a machine that was reached by its address is wanted under its name from now on.
    names = tuple(dict.fromkeys([shown, *([name] if confirm not in (None, _anyone) else [])]))
    connection.client.set_missing_host_key_policy(_Unknown(name, names, files[0], confirm))


def _anyone(_fingerprint: str) -> bool:
    return True


def lookup_name(connection: Connection) -> str:
    """The name under which ssh(1) keeps the machine's host key."""
    alias = connection.ssh_config.get("hostkeyalias")
    if alias:
        return str(alias)
    return str(connection.host) if connection.port == SSH_PORT else f"[{connection.host}]:{connection.port}"


def known_hosts(connection: Connection) -> tuple[Path, ...]:
    """The files of known host keys; new ones go into the first."""
    user = str(connection.ssh_config.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2"))
    system = str(connection.ssh_config.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts"))
    return tuple(Path(word).expanduser() for word in (*user.split(), *system.split()))


def fingerprint(key: Any) -> str:
    """``ED25519 SHA256:…``, as ssh(1) and ssh-keygen(1) show it."""
    import base64
    import hashlib

    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    kind = key.get_name().removeprefix("ssh-").removeprefix("ecdsa-sha2-").upper()
    return f"{kind} SHA256:{digest}"


@dataclass(frozen=True, slots=True)
class _Unknown:
    """What paramiko asks about a host key that is not known."""

    machine: str
    names: tuple[str, ...]
    file: Path
    confirm: Confirm | None

    def missing_host_key(self, _client: Any, _hostname: str, key: Any) -> None:
        if self.confirm is None:
            raise HostKeyError(
                f"{self.machine}: nobody here knows its host key, {fingerprint(key)}; `invoke enroll` shows "
                f"you that of a machine in a rack and remembers it, ssh {self.machine} that of an instance"
            )
        if not self.confirm(fingerprint(key)):
            raise HostKeyError(f"{self.machine}: its host key, {fingerprint(key)}, was not agreed to")
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.file.open("a", encoding="ascii") as stream:
            stream.write(f"{','.join(self.names)} {key.get_name()} {key.get_base64()}\n")


def _reason(problem: BaseException) -> str:
    if isinstance(problem, socket.gaierror):
        return "no such name"
    if isinstance(problem, TimeoutError):
        return "no answer"
    text = str(problem).strip().splitlines()
    return text[0] if text else type(problem).__name__
