"""WireGuard keys and the register of devices: the keys of each device and their validity.

The register is in the secrets store, which everyone who pushes shares, as records that are written once and
never changed: ``access/wireguard/devices/<login>/<place>/<number>``. A user has a few slots ("places"), each
with a fixed address; a slot belongs to the device in its last record, until a record revokes it. If several
people write one record concurrently, one succeeds (``Store.add``). Records contain public keys only.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from ipaddress import IPv4Address
from typing import Final

from infra.drive.pki import naming
from infra.drive.secrets.store import SecretsError, Store, ensure
from infra.drive.ssh import Machine
from infra.errors import UsageError, newer
from infra.model.remote import Vpn, VpnUser

KEY_FILE: Final = "etc/wireguard/wg-laptops.key"
"""On a server, relative to ``/``; the key is in base64, the format of wg(8)."""
PEERS_FILE: Final = "etc/remote-access/peers.json"
"""On a server, relative to ``/``: its devices, read by ``remote-access peers``."""

_TOOL: Final = "/usr/local/sbin/remote-access"
_VERSION: Final = 1
_DEVICES: Final = "access/wireguard/devices/"
_KEY_BYTES: Final = 32
_DAY: Final = timedelta(days=1)
_TRIES: Final = 5
"""Attempts to write a record if another engineer writes the same one first."""


@dataclass(frozen=True, slots=True)
class Device:
    """The last record of a slot."""

    user: str
    name: str
    """``phone``; empty for the user's first device."""
    place: int
    """The index of its address among the user's, from 0."""
    number: int
    """The number of the record, from 1."""
    key: str
    """Public, in base64."""
    issued: datetime
    until: datetime
    revoked: datetime | None = None

    @property
    def full_name(self) -> str:
        """``ada``, ``ada@phone``."""
        return f"{self.user}@{self.name}" if self.name else self.user

    def valid(self, moment: datetime) -> bool:
        """Whether servers accept it, provided that the spec has its user."""
        return self.revoked is None and self.until > moment

    def address(self, user: VpnUser) -> IPv4Address:
        """Its address, the same at every server."""
        assert user.devices is not None
        return user.devices[self.place]


class Register:
    """The register of devices. Every method may raise ``SecretsError``."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        """``clock`` returns the time, with a time zone."""
        self._store = store
        self._clock = clock

    def devices(self) -> tuple[Device, ...]:
        """The last record of each slot, by user and slot."""
        return _last(self._history())

    def add(self, user: VpnUser, name: str, key: str, until: datetime) -> Device:
        """Register a device's new key; a previous one is no longer valid.

        Raises ``PkiError`` for an invalid name; ``UsageError`` if the key belongs to another device or was
        revoked, or the user has no free slot.
        """
        naming.client(user.login, name, "")
        for _ in range(_TRIES):
            history = self._history()
            _refuse_key(history, user.login, name, key)
            own = {each.place: each for each in history if each.user == user.login}
            place = _place(own, user, name)
            if (
                (had := own.get(place))
                and had.valid(self._clock())
                and had.key == key
                and had.until >= until - _DAY
            ):
                return had
            number = own[place].number + 1 if place in own else 1
            device = Device(user.login, name, place, number, key, self._clock(), until)
            if self._write(device):
                return device
        raise SecretsError(f"{self._store}: somebody else is entering devices at this moment; run this again")

    def revoke(self, user: str, name: str | None) -> tuple[Device, ...]:
        """Revoke a user's devices, or the named one; returns those that were valid."""
        taken: list[Device] = []
        for _ in range(_TRIES):
            left = [
                each
                for each in self.devices()
                if each.user == user and name in {None, each.name} and each.revoked is None
            ]
            if not left:
                return tuple(taken)
            for each in left:
                revoked = replace(each, number=each.number + 1, revoked=self._clock())
                if self._write(revoked):
                    taken.append(revoked)
        raise SecretsError(f"{self._store}: somebody else is entering devices at this moment; run this again")

    def peers(self, vpn: Vpn) -> str:
        """The contents of ``PEERS_FILE``: the devices that may connect. ``revision`` only increases: a list
        with a lower one is older."""
        users, now = {user.login: user for user in vpn.users}, self._clock()
        history = self._history()
        rows = [
            {
                "name": each.full_name,
                "key": each.key,
                "address": str(each.address(users[each.user])),
                "until": int(_end(each, users[each.user]).timestamp()),
            }
            for each in _last(history)
            if each.user in users and each.valid(now)
        ]
        return json.dumps({"revision": len(history), "peers": rows}, indent=1) + "\n"

    def _history(self) -> tuple[Device, ...]:
        """All records, by user, slot and number."""
        found = self._store.read(self._store.names(_DEVICES))
        return tuple(
            sorted(
                (_device(name, text) for name, text in found.items()),
                key=lambda each: (each.user, each.place, each.number),
            )
        )

    def _write(self, device: Device) -> bool:
        """Add a record. False if another engineer was first."""
        name = f"{_DEVICES}{device.user}/{device.place}/{device.number:05}"
        return name in self._store.add({name: _record(device)})


def new_private_key() -> str:
    """A device's or server's private key, in base64."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return base64.b64encode(X25519PrivateKey.generate().private_bytes_raw()).decode()


def public_key(private: str) -> str:
    """The public key of a private key, both in base64."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key = X25519PrivateKey.from_private_bytes(base64.b64decode(private))
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def check_public_key(text: str) -> str:
    """Return a public key as written by ``wg pubkey``. Raises ``UsageError`` for anything else."""
    text = text.strip()
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != _KEY_BYTES or base64.b64encode(raw).decode() != text or not any(raw):
        raise UsageError(
            f"--public-key: {text[:60]!r} is not a WireGuard key: 44 characters of base64, as 'wg pubkey' "
            "and the apps show it"
        )
    return text


def server_keys(store: Store, sites: Iterable[str]) -> dict[str, str]:
    """Site → the private key of its server; created if it does not exist."""
    names = {f"access/wireguard/servers/{site}": site for site in sites}
    return {names[name]: key for name, key in ensure(store, names, new_private_key).items()}


def tell(machine: Machine, peers: str) -> None:
    """Copy ``PEERS_FILE`` to a server and apply it to WireGuard. May raise ``DriveError``."""
    script = f"umask 077; cat >{PEERS_FILE}.new && mv {PEERS_FILE}.new {PEERS_FILE} && exec {_TOOL} peers"
    machine.run("sh", "-c", f"cd / && {script}", stdin=peers.encode())


def server_files(key: str, peers: str) -> dict[str, str]:
    """Path on a VPN server → text of WireGuard's files there; secret."""
    return {KEY_FILE: f"{key}\n", PEERS_FILE: peers}


def _last(history: Iterable[Device]) -> tuple[Device, ...]:
    """The last record of each slot, by user and slot."""
    return tuple({(each.user, each.place): each for each in history}.values())


def _end(device: Device, user: VpnUser) -> datetime:
    """When servers stop accepting it: when its key expires, or on its user's last day."""
    if user.expires is None:
        return device.until
    return min(device.until, datetime.combine(date.fromisoformat(user.expires) + _DAY, time(), UTC))


def _refuse_key(history: Sequence[Device], user: str, name: str, key: str) -> None:
    """Raise if another device has the key: WireGuard would move the address to the peer added last."""
    for each in history:
        if each.key == key and each.revoked is not None:
            raise UsageError(f"--public-key: this key was {each.full_name}'s and is revoked; make a new one")
    for each in _last(history):
        if each.key == key and (each.user, each.name) != (user, name):
            raise UsageError(
                f"--public-key: this key already belongs to {each.full_name}; each device has its own"
            )


def _place(own: Mapping[int, Device], user: VpnUser, name: str) -> int:
    """The device's own slot, else the first free one."""
    assert user.devices is not None
    count = user.devices.num_addresses
    for place, each in own.items():
        if each.name == name and each.revoked is None:
            return place
    free = next((each for each in range(count) if each not in own or own[each].revoked), None)
    if free is None:
        raise UsageError(f"{user.login} has {count} devices; take one away: invoke vpn.revoke --device NAME")
    return free


def _record(device: Device) -> str:
    fields = {
        "version": _VERSION,
        "device": device.name,
        "key": device.key,
        "issued": device.issued.isoformat(),
        "until": device.until.isoformat(),
        **({"revoked": device.revoked.isoformat()} if device.revoked else {}),
    }
    return json.dumps(fields)


def _device(name: str, text: str) -> Device:
    try:
        user, place, number = name.removeprefix(_DEVICES).split("/")
        told = json.loads(text)
        if told.get("version", _VERSION) > _VERSION:
            raise SecretsError(f"{name}: {newer(told['version'], _VERSION)}")
        revoked = told.get("revoked")
        return Device(
            user,
            told["device"],
            int(place),
            int(number),
            told["key"],
            datetime.fromisoformat(told["issued"]),
            datetime.fromisoformat(told["until"]),
            datetime.fromisoformat(revoked) if revoked else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SecretsError(f"{name}: this record of a WireGuard device is damaged") from None
