"""Performs AWS's pending maintenance of tunnel endpoints, one tunnel at a time, while traffic uses the
others.

AWS announces the replacement of an endpoint and performs it automatically after a certain date (Site-to-Site
VPN User Guide, "Tunnel endpoint lifecycle control"). If we start it, traffic is moved away first.

The gateway keeps a mark of each tunnel in maintenance, beside its mark of drained ones: an interrupted run
is completed by the next one, and tunnels drained by hand stay drained. Both marks are lost when the gateway
restarts, which ends the drain too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from infra.drive.ssh import Machine
from infra.drive.vpn.cloud import Maintenance
from infra.errors import DriveError
from infra.model.tunnels import SiteTunnel

PATIENCE: Final = 1200.0
"""Seconds to wait until AWS has replaced an endpoint and the tunnel is up again."""

_BETWEEN: Final = 5.0

_MARKS: Final = "/run/site-gateway/maintenance"


class Marks(Protocol):
    """The names of tunnels in maintenance, kept where drains are kept: see ``GatewayMarks``."""

    def names(self) -> frozenset[str]: ...
    def put(self, tunnel: str) -> None: ...
    def take(self, tunnel: str) -> None: ...


@dataclass(frozen=True, slots=True)
class GatewayMarks:
    """The marks on a gateway. Every method may raise ``UnreachedError`` or ``RemoteError``."""

    machine: Machine

    def names(self) -> frozenset[str]:
        return frozenset(self.machine.run("sh", "-c", f"ls {_MARKS} 2>/dev/null || :").split())

    def put(self, tunnel: str) -> None:
        self.machine.run("sh", "-c", f'mkdir -p {_MARKS} && : >{_MARKS}/"$1"', "sh", tunnel)

    def take(self, tunnel: str) -> None:
        self.machine.run("rm", "-f", f"{_MARKS}/{tunnel}")


class Gate(Protocol):
    """The site's end of its tunnels; implemented by ``LiveGateway``."""

    def carries(self, tunnel: SiteTunnel) -> bool: ...
    def drain(self, tunnel: SiteTunnel) -> None: ...
    def restore(self, tunnel: SiteTunnel) -> None: ...


class Endpoints(Protocol):
    """AWS's end; implemented by ``Cloud``."""

    def maintenance(self, tunnel: SiteTunnel) -> Maintenance: ...
    def is_up(self, tunnel: SiteTunnel) -> bool: ...
    def replace(self, tunnel: SiteTunnel) -> None: ...


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The maintenance of tunnels and its dependencies."""

    gate: Gate
    endpoints: Endpoints
    marks: Marks
    command: str
    """The command to continue an interrupted run."""
    say: Callable[[str], None]
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    patience: float = PATIENCE

    def run(self, tunnels: Sequence[SiteTunnel], chosen: Iterable[str]) -> tuple[str, ...]:
        """Replace the endpoints of the chosen tunnels with pending maintenance, and complete an interrupted
        run; returns the names of all of these.

        Args:
            tunnels: All tunnels of the site, including those that carry the traffic meanwhile.
            chosen: Names of tunnels.

        Raises ``DriveError`` before changing a tunnel if the other one of its connection does not carry
        traffic, and if one does not come up again; that tunnel stays drained, and the remaining ones are not
        changed.
        """
        names = frozenset(chosen)
        done = []
        for tunnel in in_order(tunnels):
            if tunnel.name not in names:
                continue
            begun = tunnel.name in self.marks.names()
            if not begun and not self.endpoints.maintenance(tunnel).pending:
                continue
            self._one(tunnel, [each for each in tunnels if each.link == tunnel.link and each != tunnel])
            done.append(tunnel.name)
        return tuple(done)

    def _one(self, tunnel: SiteTunnel, siblings: Sequence[SiteTunnel]) -> None:
        left = "as it was"
        try:
            if self.endpoints.maintenance(tunnel).pending:
                self._require_another(tunnel, siblings)
                self.marks.put(tunnel.name)
                left = "drained, its endpoint not replaced"
                self.say(f"{tunnel.name}: traffic moves to the other tunnel")
                try:
                    self.gate.drain(tunnel)
                except DriveError:
                    self._restore(tunnel)
                    left = "as it was"
                    raise
                self.say(f"{tunnel.name}: AWS replaces its endpoint; this takes some minutes")
                self.endpoints.replace(tunnel)
            left = "drained, while AWS replaces its endpoint"
            self._until_up(tunnel)
            left = "up, and still drained"
            self._restore(tunnel)
        except (DriveError, KeyboardInterrupt):
            self.say(f"{tunnel.name} is left {left}; to continue: {self.command}")
            raise
        self.say(f"{tunnel.name}: done")

    def _restore(self, tunnel: SiteTunnel) -> None:
        self.gate.restore(tunnel)
        self.marks.take(tunnel.name)

    def _require_another(self, tunnel: SiteTunnel, siblings: Sequence[SiteTunnel]) -> None:
        """Require that the other tunnel of the connection, which AWS does not change meanwhile, carries
        traffic."""
        marked = self.marks.names()
        for other in siblings:
            if other.name in marked:
                raise DriveError(
                    f"{tunnel.name}: maintenance of {other.name} is not finished; finish it first"
                )
            if self.gate.carries(other) and self.endpoints.is_up(other):
                return
        names = ", ".join(each.name for each in siblings) or "none"
        raise DriveError(
            f"{tunnel.name}: the other tunnel of its connection ({names}) does not carry traffic, so a "
            f"replacement would cut {tunnel.peer} off; fix it first: invoke vpn.status"
        )

    def _until_up(self, tunnel: SiteTunnel) -> None:
        begun = self.clock()
        while (
            self.endpoints.maintenance(tunnel).pending
            or not self.endpoints.is_up(tunnel)
            or not self.gate.carries(tunnel)
        ):
            if self.clock() - begun > self.patience:
                raise DriveError(
                    f"{tunnel.name} did not come up within {self.patience:.0f} s; traffic stays on the other "
                    "tunnel. See `invoke vpn.status` and the gateway's log"
                )
            self.wait(_BETWEEN)


def in_order(tunnels: Iterable[SiteTunnel]) -> list[SiteTunnel]:
    """The tunnels to AWS, the least preferred of each link first, so that traffic moves away and back only
    once."""
    to_aws = [each for each in tunnels if each.kind == "aws"]
    return sorted(to_aws, key=lambda each: (each.peer, each.preference, -each.metric))


def announced(endpoints: Endpoints, tunnels: Iterable[SiteTunnel]) -> Mapping[str, Maintenance]:
    """Tunnel name → its announced maintenance, for tunnels to AWS."""
    return {tunnel.name: endpoints.maintenance(tunnel) for tunnel in in_order(tunnels)}
