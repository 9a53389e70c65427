"""A site's running gateway: the state of its tunnels in strongSwan and FRR, and operations on them."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from infra.drive.ssh import Machine, Remote, UnreachedError
from infra.errors import DriveError
from infra.model.tunnels import SiteGateway, SiteTunnel

_TOOL: Final = "/usr/local/sbin/site-tunnel"
_UNCONFIRMED: Final = "/run/site-gateway/firewall.before"

RELOAD: Final = (_TOOL, "reload", "--confirm", "60")
"""After loading a new firewall, a gateway waits this many seconds for a confirmation over a new connection,
else reverts it. ssh gives up after 30 s (``ConnectTimeout``). In a converge (``cookbooks/network_site``)
the gateway waits for an hour."""

_VICI: Final = "/run/charon.vici"

_RELAY: Final = f"""\
import os, select, socket, sys
vici = socket.socket(socket.AF_UNIX)
vici.connect({_VICI!r})
while True:
    for end in select.select([0, vici], [], [])[0]:
        data = os.read(0, 65536) if end == 0 else vici.recv(65536)
        if not data:
            sys.exit()
        vici.sendall(data) if end == 0 else os.write(1, data)
"""
"""A script that relays strongSwan's control socket, which only root can open, over an SSH connection."""


def confirm(machine: Machine) -> None:
    """Confirm the firewall that a gateway loaded. Raises ``DriveError`` if it blocks new connections."""
    try:
        replace(machine, socket="none").run(_TOOL, "confirm")
    except UnreachedError as problem:
        raise DriveError(
            f"{problem}. Its firewall lets no new connection in from here; if it is a new one, the gateway "
            "takes it back by itself. Add your address to the gateway's ssh_from, or come by the private "
            "network, and run this again"
        ) from None


def unconfirmed(remote: Remote) -> bool:
    """Whether a machine is a gateway that waits for ``confirm``."""
    return remote.run(f"test -e {_UNCONFIRMED}", check=False)[0] == 0


@dataclass(frozen=True, slots=True)
class TunnelState:
    """The state of a tunnel on the gateway."""

    established: bool
    """Whether its keys are negotiated and it carries traffic."""
    state: str
    """strongSwan's state: ``ESTABLISHED``, ``CONNECTING``; ``DOWN`` without an IKE SA."""
    associations: int
    """The number of IKE SAs that carry traffic. Two if both ends initiated at once, each sending over its
    own, or while one replaces the other; the timer of ``site-tunnel revive`` removes duplicates."""
    seconds: int
    """The age of the oldest in seconds."""
    bytes_in: int
    bytes_out: int
    session: str
    """BGP's state: ``Established``, ``Active``; empty with static routes."""
    routes: int
    """Accepted from the peer; 0 with static routes."""


DOWN: Final = TunnelState(False, "DOWN", 0, 0, 0, 0, "", 0)


@dataclass(frozen=True, slots=True)
class LiveGateway:
    """A gateway that can be queried and controlled."""

    gateway: SiteGateway
    machine: Machine

    def states(self) -> Mapping[str, TunnelState]:
        """Tunnel → its state, for all tunnels in the spec. Raises ``UnreachedError`` or ``RemoteError``."""
        with self._vici() as session:
            associations = [each for found in session.list_sas() for each in found.items()]
        spoken = any(tunnel.routing == "bgp" for tunnel in self.gateway.tunnels)
        peers = self._peers() if spoken else {}
        return {
            tunnel.name: _state(tunnel, associations, peers.get(str(tunnel.inside_remote), {}))
            for tunnel in self.gateway.tunnels
        }

    def carries(self, tunnel: SiteTunnel) -> bool:
        """Whether traffic can use the tunnel: it is up, and so is its BGP session, if any."""
        state = self.states()[tunnel.name]
        return state.established and (tunnel.routing == "static" or state.session == "Established")

    def drain(self, tunnel: SiteTunnel) -> None:
        """Move the traffic of both directions to another tunnel."""
        self.machine.run(_TOOL, "drain", tunnel.name)

    def restore(self, tunnel: SiteTunnel) -> None:
        """Allow traffic on the tunnel again."""
        self.machine.run(_TOOL, "restore", tunnel.name)

    def reconnect(self, tunnel: SiteTunnel) -> None:
        """Terminate a tunnel and start it again with the current keys."""
        with self._vici() as session:
            _each(session.terminate({"ike": tunnel.name, "timeout": "5000", "force": "yes"}), ignore=True)
            # Does not wait: the other end may not have its new key yet, and strongSwan retries.
            _each(session.initiate({"child": tunnel.name, "ike": tunnel.name, "timeout": "-1"}), ignore=True)

    def _peers(self) -> dict[str, Any]:
        told = self.machine.run("vtysh", "-c", "show bgp ipv4 unicast summary json")
        try:
            peers = json.loads(told).get("peers", {})
        except ValueError:
            raise DriveError(f"{self.machine.name}: FRR's answer can't be read: {told[:80]!r}") from None
        return dict(peers)

    @contextmanager
    def _vici(self) -> Iterator[Any]:
        from vici import Session

        ours, theirs = socket.socketpair()
        command = self.machine.command(["python3", "-c", _RELAY])
        with (
            ours,
            theirs,
            subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE
            ) as relay,
        ):
            theirs.close()
            ours.settimeout(60)
            try:
                yield Session(ours)
            except (OSError, EOFError) as problem:
                ours.close()
                relay.kill()
                assert relay.stderr is not None
                said = relay.stderr.read().decode(errors="replace").strip().splitlines()
                why = said[-1] if said else str(problem) or "the connection was closed"
                raise UnreachedError(f"{self.machine.name}: strongSwan can't be asked: {why}") from None
            finally:
                ours.close()
                relay.kill()


def _each(events: Any, *, ignore: bool) -> None:
    """Run a command that streams events to its end."""
    from vici.exception import CommandException

    try:
        for _ in events:
            pass
    except CommandException:
        if not ignore:
            raise


def _state(tunnel: SiteTunnel, associations: list[tuple[str, Any]], peer: Mapping[str, Any]) -> TunnelState:
    session, routes = str(peer.get("state", "")), int(peer.get("pfxRcd", 0) or 0)
    own = [found for name, found in associations if name == tunnel.name]
    if up := [found for found in own if found["state"] == b"ESTABLISHED" and _installed(found)]:
        children = [child for found in up for child in _installed(found)]
        return TunnelState(
            established=True,
            state="ESTABLISHED",
            associations=len(up),
            seconds=max(int(found.get("established", 0)) for found in up),
            bytes_in=sum(int(child.get("bytes-in", 0)) for child in children),
            bytes_out=sum(int(child.get("bytes-out", 0)) for child in children),
            session=session,
            routes=routes,
        )
    longest = max(own, key=lambda found: int(found.get("established", 0)), default=None)
    if longest is None:
        return replace(DOWN, session=session, routes=routes)
    seconds = int(longest.get("established", 0))
    return replace(DOWN, state=longest["state"].decode(), seconds=seconds, session=session, routes=routes)


def _installed(association: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The child SAs of an IKE SA that carry traffic."""
    states = {b"INSTALLED", b"REKEYING", b"REKEYED"}
    return [child for child in association.get("child-sas", {}).values() if child.get("state") in states]
