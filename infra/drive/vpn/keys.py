"""The pre-shared keys of tunnels: as strongSwan reads those of a gateway, and new ones for a site.

What strongSwan reads holds secrets: it goes to ``/etc/swanctl/conf.d/90-keys.conf`` with mode 0600, and
nowhere else.

New keys come to one tunnel at a time, while traffic goes on over the others. A tunnel to AWS has a sibling:
traffic is moved there, both ends get the new key, traffic may come back. A tunnel between two sites may be
their only one: both ends get the key, and what they agreed on with the old one stays until they next meet
anew. (IKE's keys are made of random numbers; the pre-shared one only proves who made them, RFC 7296, 2.15.
Proving it at once, make before break, loses what the answering end sends before the other is ready.)

The next key waits in the store under ``<name>.next`` until AWS has it. Whatever moment a run is cut off at,
running it again finishes the work, and applying puts both ends on the key that the store then holds.
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
"""On the gateway, relative to ``/``."""

_PLAIN = re.compile(r"(?!0[xXsS])[ -~]+")
"""Printable ASCII; after ``0x`` strongSwan reads on as hex, after ``0s`` as base64 (swanctl.conf(5))."""


def keys(gateway: SiteGateway, outputs: Outputs, kept: Mapping[str, str]) -> str:
    """The ``secrets`` section with the key of every tunnel whose other end is known; ``kept`` is secret's
    name → key.

    ``SecretsError``, which never quotes a key, for one that is missing or that strongSwan would read as
    another.
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
    # The other end's identity alone, which no two tunnels share. strongSwan tries every key that has one of
    # both ends' identities: with ours in each, any tunnel's key would open all of them.
    return f"    ike-{name} {{\n        id = {remote}\n        secret = {_quoted(key)}\n    }}\n"


def _quoted(text: str) -> str:
    r"""A string of strongswan.conf(5): in double quotes, where ``\`` and ``"`` are escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


PATIENCE: Final = 180.0
"""Seconds for a tunnel to come up again."""

_BETWEEN: Final = 1.0


class Gate(Protocol):
    """One end of a tunnel, as ``LiveGateway`` is."""

    def carries(self, tunnel: SiteTunnel) -> bool: ...
    def drain(self, tunnel: SiteTunnel) -> None: ...
    def restore(self, tunnel: SiteTunnel) -> None: ...
    def reconnect(self, tunnel: SiteTunnel) -> None: ...


class Keys(Protocol):
    """AWS's end, as ``Cloud`` is."""

    def change_key(self, tunnel: SiteTunnel, key: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a rotation works with."""

    gate: Gate
    """The site's own gateway."""
    cloud: Keys
    store: Store
    deliver: Callable[[Iterable[str]], None]
    """Brings the keys of the store to the gateways of these sites."""
    say: Callable[[str], None]
    """Tells a person how far it is."""
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    patience: float = PATIENCE

    def run(self, site: str, tunnels: Sequence[SiteTunnel]) -> None:
        """Rotate them all, the least preferred of each link first, so that traffic moves over and back once.

        ``DriveError`` before anything is touched when a tunnel has no sibling that carries traffic, and when
        one does not come back; that one then stays drained, and the others are not touched.
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
            self.gate.restore(tunnel)  # both ends still have the old one
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
