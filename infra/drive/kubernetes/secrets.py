"""The cluster's keys, created once and kept in the environment's store, and which of them each machine gets.

::

    kubernetes/pki/ca               the cluster's authority: certificate and key in one value, so that
    kubernetes/pki/front-proxy-ca   two engineers who begin at once can't end with half of each other's
    kubernetes/pki/etcd-ca
    kubernetes/pki/pages-ca         of internal web pages
    kubernetes/pki/sa               keys of service accounts' tokens: the first signs, all verify
    kubernetes/encryption           keys of encryption at rest, the one that writes first
    kubernetes/users/<login>        the end of a user's last certificate, and whether all were revoked
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from infra.drive.kubernetes import certificates
from infra.drive.kubernetes.certificates import Pair
from infra.drive.secrets.store import SecretsError, Store, ensure

ROOT: Final = "kubernetes"
AUTHORITIES: Final = {
    "ca": "kubernetes-ca",
    "front-proxy-ca": "kubernetes-front-proxy-ca",
    "etcd-ca": "etcd-ca",
    "pages-ca": "internal-pages-ca",
}
"""Secret below ``kubernetes/pki`` → the CA's common name."""

ENCRYPTION: Final = f"{ROOT}/encryption"
ACCOUNTS: Final = f"{ROOT}/pki/sa"
USERS: Final = f"{ROOT}/users/"

_FILES: Final = {"ca": "ca", "front-proxy-ca": "front-proxy-ca", "etcd-ca": "etcd/ca"}
"""CA → its files below /etc/kubernetes/pki, without extensions."""


@dataclass(frozen=True, slots=True)
class Keys:
    """All keys of a cluster."""

    authorities: Mapping[str, Pair]
    """By the names of ``AUTHORITIES``."""
    accounts: str
    """In the stored format: see ``_account_keys``."""
    encryption: str
    """In the stored format: see ``encryption_config``."""

    def __repr__(self) -> str:
        return "Keys()"

    @property
    def ca(self) -> Pair:
        return self.authorities["ca"]

    def pki(self) -> dict[str, str]:
        """Path below /etc/kubernetes/pki → text: the files that a master needs before kubeadm runs ("Manual
        certificate distribution"); kubeadm creates the others."""
        found: dict[str, str] = {}
        for name, path in _FILES.items():
            pair = self.authorities[name]
            found |= {f"{path}.crt": pair.certificate, f"{path}.key": pair.key}
        return {**found, **self.of_tokens()}

    def of_tokens(self) -> dict[str, str]:
        """The files that sign and verify service account tokens (kube-apiserver(1),
        ``--service-account-key-file``: it may hold several keys)."""
        private = [each["key"] for each in _account_keys(self.accounts)]
        return {"sa.key": private[0], "sa.pub": "".join(map(certificates.public_of, private))}


def exist(store: Store) -> bool:
    """Whether the cluster's CA exists; does not decrypt anything."""
    return f"{ROOT}/pki/ca" in store.names(f"{ROOT}/pki/")


def made(store: Store, now: datetime) -> Keys:
    """The keys; missing ones are created and stored. Concurrent calls return the same keys."""
    found = {}
    for name, common in AUTHORITIES.items():
        where = f"{ROOT}/pki/{name}"
        found[name] = _one(store, where, _maker(common, now), certificates.split)
    accounts = _one(store, ACCOUNTS, certificates.account_key, _checked_accounts)
    kept = _one(store, ENCRYPTION, lambda: json.dumps([_encryption_key(1)]), _checked_encryption)
    return Keys(found, accounts, kept)


def authority(store: Store) -> Pair | None:
    """The cluster's CA; None if it does not exist yet."""
    found: Pair | None = _opened(store, f"{ROOT}/pki/ca", certificates.split)
    return found


def encryption_config(kept: str) -> str:
    """EncryptionConfiguration (apiserver.config.k8s.io/v1), for ``--encryption-provider-config``.

    Secretbox with the first key encrypts, all keys decrypt, and unencrypted data is read as it is
    (Kubernetes, "Encrypting Confidential Data at Rest").
    """
    keys = [{"name": each["name"], "secret": each["secret"]} for each in json.loads(kept)]
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [
            {"resources": ["secrets"], "providers": [{"secretbox": {"keys": keys}}, {"identity": {}}]}
        ],
    }
    return json.dumps(document, indent=2) + "\n"


Rotation: TypeAlias = Literal["none", "added", "promoted"]
"""The state of a rotation: a single key; a newer key that only decrypts, or verifies; the newer key
encrypts, or signs, and older ones still decrypt or verify."""


def rotation(store: Store) -> Rotation:
    """The state of a rotation of the encryption key."""
    return _rotation(_encryption(store))


def _rotation(keys: Sequence[Mapping[str, str]]) -> Rotation:
    first, *others = map(_number, keys)
    if not others:
        return "none"
    return "promoted" if first > max(others) else "added"


def add_encryption_key(store: Store) -> None:
    """Add a key that decrypts but does not encrypt yet: masters are updated one at a time, and each must be
    able to read what the others write. After this, and after ``promote_encryption_key``, all masters must
    have the keys before the next step."""
    keys = _encryption(store)
    store.put(ENCRYPTION, json.dumps([*keys, _encryption_key(1 + max(map(_number, keys)))]))


def promote_encryption_key(store: Store) -> None:
    """Encrypt with the newest key from now on; all others still decrypt."""
    store.put(ENCRYPTION, json.dumps(sorted(_encryption(store), key=_number, reverse=True)))


def without_old_keys(store: Store) -> str:
    """The stored keys without all but the encrypting one; for ``encryption_config``."""
    return json.dumps(_encryption(store)[:1])


def drop_encryption_keys(store: Store) -> None:
    """Delete all keys but the encrypting one; every secret must have been rewritten before."""
    store.put(ENCRYPTION, without_old_keys(store))


def _number(key: Mapping[str, str]) -> int:
    return int(key["name"].removeprefix("key"))


# -- The key of service accounts' tokens -------------------------------------------------------------------


def token_rotation(store: Store) -> Rotation:
    """The state of a rotation of the key that signs tokens."""
    return _rotation(_accounts(store))


def add_token_key(store: Store) -> None:
    """Add a key that verifies but does not sign yet: all masters must have it, and its public key must be
    published, before one signs with it."""
    keys = _accounts(store)
    name = f"key{1 + max(map(_number, keys))}"
    store.put(ACCOUNTS, json.dumps([*keys, {"name": name, "key": certificates.account_key()}]))


def promote_token_key(store: Store) -> None:
    """Sign with the newest key; all others still verify."""
    store.put(ACCOUNTS, json.dumps(sorted(_accounts(store), key=_number, reverse=True)))


def sign_with_token_key(store: Store, now: datetime) -> None:
    """Record that all masters sign with the first key from now on."""
    first, *others = _accounts(store)
    store.put(ACCOUNTS, json.dumps([{**first, "since": now.isoformat()}, *others]))


def token_key_since(store: Store) -> datetime | None:
    """Since when all masters sign with the first key; None if that is not known."""
    since = _accounts(store)[0].get("since")
    return datetime.fromisoformat(since) if since else None


def old_token_keys(store: Store) -> frozenset[str]:
    """Ids of the keys that verify but do not sign, as in tokens (RFC 7515, ``kid``)."""
    return frozenset(certificates.key_id(each["key"]) for each in _accounts(store)[1:])


def without_old_token_keys(store: Store) -> str:
    """The stored keys without all but the signing one; for ``Keys.accounts``."""
    return json.dumps(_accounts(store)[:1])


def drop_token_keys(store: Store) -> None:
    """Delete all keys but the signing one: tokens of the others are refused from now on."""
    store.put(ACCOUNTS, without_old_token_keys(store))


# -- Certificates of people --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Issued:
    """The record of a user's certificates. Kubernetes has no certificate revocation: if certificates are
    revoked, the user has no rights until they have expired."""

    until: datetime
    """When the last of them expires."""
    revoked: bool = False


def issued(store: Store) -> dict[str, Issued]:
    """Login → the record of issued certificates."""
    names = store.names(USERS)
    found = {}
    for name, text in store.read(names).items():
        try:
            value = json.loads(text)
            found[name.removeprefix(USERS)] = Issued(
                datetime.fromisoformat(value["until"]), bool(value["revoked"])
            )
        except (ValueError, KeyError, TypeError):
            raise _damaged(store, name) from None
    return found


def remember(store: Store, login: str, until: datetime) -> None:
    """Record that a user's certificate was issued, valid until then."""
    before = issued(store).get(login)
    latest = until if before is None else max(before.until, until)
    _keep(store, login, Issued(latest, before.revoked if before else False))


def revoke(store: Store, login: str) -> Issued | None:
    """Revoke all certificates of a user; None if there were none."""
    before = issued(store).get(login)
    if before is None:
        return None
    _keep(store, login, replace(before, revoked=True))
    return replace(before, revoked=True)


def locked_out(store: Store, now: datetime) -> dict[str, datetime]:
    """Users without rights → when the last of their revoked certificates expires."""
    return {login: each.until for login, each in issued(store).items() if each.revoked and each.until > now}


def readmit(store: Store, login: str) -> None:
    """Delete the record of revoked certificates, which have expired."""
    store.delete(f"{USERS}{login}")


def _keep(store: Store, login: str, value: Issued) -> None:
    text = json.dumps({"until": value.until.isoformat(), "revoked": value.revoked})
    store.put(f"{USERS}{login}", text)


# -- parts -------------------------------------------------------------------------------------------------


def _maker(common: str, now: datetime) -> Callable[[], str]:
    return lambda: certificates.authority(common, now).joined()


def _one(store: Store, name: str, make: Callable[[], str], read: Callable[[str], Any]) -> Any:
    text = ensure(store, [name], make)[name]
    try:
        return read(text)
    except (ValueError, KeyError, TypeError):
        raise _damaged(store, name) from None


def _opened(store: Store, name: str, read: Callable[[str], Any]) -> Any:
    text = store.get(name)
    if text is None:
        return None
    try:
        return read(text)
    except (ValueError, KeyError, TypeError):
        raise _damaged(store, name) from None


def _damaged(store: Store, name: str) -> SecretsError:
    return SecretsError(f"{store}: {name} is not as it was written; restore it from a backup")


def _checked_accounts(text: str) -> str:
    for each in _account_keys(text):
        certificates.public_of(each["key"])
    return text


def _account_keys(text: str) -> list[dict[str, str]]:
    """The first key signs, all verify: ``name``, ``key`` (PEM), ``since`` (when it began to sign). A key
    that was never rotated is stored as plain PEM."""
    if text.startswith("-----"):
        return [{"name": "key1", "key": text}]
    found: list[dict[str, str]] = json.loads(text)
    return found


def _accounts(store: Store) -> list[dict[str, str]]:
    text = _opened(store, ACCOUNTS, _checked_accounts)
    if text is None:
        raise SecretsError(f"{store}: {ACCOUNTS} not found; invoke cluster.up creates it")
    return _account_keys(text)


def _checked_encryption(text: str) -> str:
    encryption_config(text)
    return text


def _encryption(store: Store) -> list[dict[str, str]]:
    text = _opened(store, ENCRYPTION, _checked_encryption)
    if text is None:
        raise SecretsError(f"{store}: {ENCRYPTION} not found; invoke cluster.up creates it")
    found: list[dict[str, str]] = json.loads(text)
    return found


def _encryption_key(number: int) -> dict[str, str]:
    """A new key of 32 bytes, as secretbox requires."""
    return {"name": f"key{number}", "secret": base64.b64encode(secrets.token_bytes(32)).decode()}
