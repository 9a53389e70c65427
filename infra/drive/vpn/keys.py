"""The pre-shared keys of tunnels: the secrets file of a gateway, and the rotation of a site's keys.

The file contains secrets: it goes to ``/etc/swanctl/conf.d/90-keys.conf`` with mode 0600, and nowhere else.

Keys are rotated one tunnel at a time, while traffic uses the others. A tunnel to AWS has a sibling: traffic
is moved there, both ends get the new key, and traffic may return. A tunnel between two sites may be the only
one: both ends get the key, and the SAs negotiated with the old key remain until the next IKE authentication.
(IKE's session keys are derived from a Diffie-Hellman exchange; the pre-shared key only authenticates the
peers, RFC 7296, 2.15. Immediate reauthentication with make-before-break loses packets that the responder
sends before the initiator is ready.)

The next key is stored under ``<name>.next`` until AWS has it. If a run is interrupted at any point, running
it again completes the rotation, and an apply sets both ends to the key in the store.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from infra.drive.secrets import Store, ensure, tunnel_key
from infra.drive.secrets.store import SecretsError
from infra.errors import DriveError
from infra.model.outputs import Outputs
from infra.model.tunnels import SiteGateway, SiteTunnel

KEYS_FILE: Final = "etc/swanctl/conf.d/90-keys.conf"
"""The path on the gateway, relative to ``/``."""

_PLAIN = re.compile(r"(?!0[xXsS])[ -~]+")
"""Printable ASCII; strongSwan would decode the rest after ``0x`` as hex and after ``0s`` as base64
(swanctl.conf(5))."""


def keys(gateway: SiteGateway, outputs: Outputs, kept: Mapping[str, str]) -> str:
    """The ``secrets`` section with the key of every tunnel whose remote address is known; ``kept`` maps
    secret name → key.

    Raises ``SecretsError``, which never contains a key, for a key that is missing or that strongSwan would
    decode differently.
    """
    entries = []
    for tunnel, remote in outputs.with_remote(gateway.tunnels):
        key = kept.get(tunnel.secret)
        if key is None:
            raise SecretsError(f"{tunnel.secret}: the tunnel {tunnel.name} of {gateway.site} has no key")
        if not _PLAIN.fullmatch(key):
            raise SecretsError(
                f"{tunnel.secret}: strongSwan would read this key as another one; it must be printable "
                "ASCII and must not begin with 0x or 0s: delete it and a good one is made"
            )
        entries.append(_entry(tunnel.name, str(remote), key))
    return "secrets {\n" + "".join(entries) + "}\n"


def _entry(name: str, remote: str, key: str) -> str:
    # Only the remote identity, which is unique per tunnel. strongSwan tries every key that matches either
    # identity: with the local one in each section, any tunnel's key would be accepted for all of them.
    return f"    ike-{name} {{\n        id = {remote}\n        secret = {_quoted(key)}\n    }}\n"


def _quoted(text: str) -> str:
    r"""A string of strongswan.conf(5): in double quotes, where ``\`` and ``"`` are escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


PATIENCE: Final = 180.0
"""Seconds to wait until a tunnel is up again."""

_BETWEEN: Final = 1.0


class Gate(Protocol):
    """The gateway's end of a tunnel; implemented by ``LiveGateway``."""

    def carries(self, tunnel: SiteTunnel) -> bool: ...
    def drain(self, tunnel: SiteTunnel) -> None: ...
    def restore(self, tunnel: SiteTunnel) -> None: ...
    def reconnect(self, tunnel: SiteTunnel) -> None: ...


class Keys(Protocol):
    """AWS's end of a tunnel; implemented by ``Cloud``."""

    def change_key(self, tunnel: SiteTunnel, key: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Rotation:
    """A key rotation and its dependencies."""

    gate: Gate
    """The site's own gateway."""
    cloud: Keys
    store: Store
    deliver: Callable[[Iterable[str]], None]
    """Copies the keys in the store to the gateways of these sites."""
    say: Callable[[str], None]
    """Reports progress to the user."""
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    patience: float = PATIENCE

    def run(self, site: str, tunnels: Sequence[SiteTunnel]) -> None:
        """Rotate the keys of all tunnels, the least preferred of each link first, so that traffic moves away
        and back only once.

        Raises ``DriveError`` before changing a tunnel that has no sibling carrying traffic, and if one does
        not come up again; that tunnel stays drained, and the remaining ones are not changed.
        """
        for tunnel in sorted(tunnels, key=lambda each: (each.peer, each.preference, -each.metric)):
            if tunnel.kind == "aws":
                self._aws(site, tunnel, _siblings(tunnel, tunnels))
            else:
                self._between_sites(site, tunnel)

    def _aws(self, site: str, tunnel: SiteTunnel, siblings: Sequence[SiteTunnel]) -> None:
        if not any(self.gate.carries(each) for each in siblings):
            names = ", ".join(each.name for each in siblings) or "none"
            raise DriveError(
                f"{tunnel.name}: no other tunnel to {tunnel.peer} carries traffic ({names}), so a new key "
                "would cut it off; fix that first: invoke vpn.status"
            )
        self.say(f"{tunnel.name}: traffic moves to another tunnel")
        self.gate.drain(tunnel)
        waiting = f"{tunnel.secret}.next"
        key = ensure(self.store, [waiting], tunnel_key)[waiting]
        self.say(f"{tunnel.name}: AWS gets the new key; this takes some minutes")
        try:
            self.cloud.change_key(tunnel, key)
        except DriveError:
            self.gate.restore(tunnel)  # both ends still have the old key
            raise
        self.store.put(tunnel.secret, key)
        self.deliver([site])
        self.gate.reconnect(tunnel)
        self._until_up(tunnel)
        self.store.delete(waiting)
        self.gate.restore(tunnel)
        self.say(f"{tunnel.name}: done")

    def _between_sites(self, site: str, tunnel: SiteTunnel) -> None:
        self.say(f"{tunnel.name}: both ends get a new key")
        self.store.put(tunnel.secret, tunnel_key())
        self.deliver([site, tunnel.peer])
        if not self.gate.carries(tunnel):
            self.gate.reconnect(tunnel)
            self._until_up(tunnel)
        self.say(f"{tunnel.name}: done")

    def _until_up(self, tunnel: SiteTunnel) -> None:
        begun = self.clock()
        while not self.gate.carries(tunnel):
            if self.clock() - begun > self.patience:
                raise DriveError(
                    f"{tunnel.name} did not come up with its new key within {self.patience:.0f} s; traffic "
                    "stays on the other tunnel. See `invoke vpn.status` and the gateway's log, then run this "
                    "again"
                )
            self.wait(_BETWEEN)


def _siblings(tunnel: SiteTunnel, tunnels: Iterable[SiteTunnel]) -> list[SiteTunnel]:
    return [each for each in tunnels if each.peer == tunnel.peer and each.name != tunnel.name]
