"""`invoke kubeconfig`, and what `invoke vpn.revoke` does in the cluster."""

from __future__ import annotations

import json as jsonlib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from infra.commands.cluster import working
from infra.commands.environment import Understood
from infra.commands.terminal import say, say_json
from infra.commands.vpn import keeping
from infra.errors import CausewayError, UsageError
from infra.nearest import meant_one_of

if TYPE_CHECKING:
    from infra.drive.kubernetes.certificates import Pair
    from infra.drive.secrets import Store
    from infra.model.platform import User

HOURS: Final = 12


def kubeconfig(understood: Understood, login: str, *, hours: int, by_exec: bool, out: str, json: bool) -> int:
    """Write a user's kubeconfig."""
    from infra.drive.kubernetes import access
    from infra.drive.kubernetes import kubeconfig as made
    from infra.drive.private import write_file

    user = _user(understood, login)
    store = keeping.store(understood)
    authority = _authority(understood, store)
    where = access.endpoint(understood.cluster)
    name = understood.cluster.name
    if by_exec:
        document = made.with_command(
            where,
            authority.certificate,
            name,
            login,
            folder=Path.cwd(),
            environment=understood.environment.name,
        )
        until = None
    else:
        pair = made.issue(
            store, authority, login, user.groups, keeping.now(), _life(understood, login, hours)
        )
        document = made.with_certificate(where, authority.certificate, name, login, pair)
        until = pair.ends
    document["contexts"][0]["context"]["namespace"] = user.namespace
    path = Path(out) if out else understood.environment.build / "kubeconfigs" / f"{login}.yaml"
    write_file(path, jsonlib.dumps(document, indent=2) + "\n")
    if json:
        say_json({"file": str(path), "until": until.isoformat() if until else None})
    elif until:
        say(f"{path}, good until {until:%Y-%m-%d %H:%M} UTC. It is a key: hand it over safely.")
    else:
        say(f"{path}: it holds no key; whoever can open the store is let in as {login}.")
    if not json:
        say(f"For example: KUBECONFIG={path} kubectl get pods")
    return 0


def credential(understood: Understood, login: str) -> int:
    """Print an ExecCredential for kubectl."""
    from infra.drive.kubernetes import kubeconfig as made

    user = _user(understood, login)
    store = keeping.store(understood)
    authority = _authority(understood, store)
    life = min(made.EXEC_LIFE, _life(understood, login, HOURS))
    say_json(made.exec_credential(made.issue(store, authority, login, user.groups, keeping.now(), life)))
    return 0


def known(understood: Understood, store: Store, login: str) -> bool:
    """Whether the cluster ever gave a user credentials."""
    from infra.drive.kubernetes import secrets

    return understood.cluster.control_plane is not None and login in secrets.issued(store)


def revoked(understood: Understood, store: Store, login: str, *, push: bool) -> dict[str, Any]:
    """Take a user's rights in the cluster away at once: ``{"until", "bindings", "tokens", "error"}``; empty
    where there is no cluster. Also for a user who never had a certificate of the cluster."""
    from infra.drive.kubernetes import kubeconfig as made
    from infra.drive.kubernetes import secrets

    if understood.cluster.control_plane is None or not secrets.exist(store):
        return {}
    before = secrets.revoke(store, login)
    found: dict[str, Any] = {
        "until": before.until.isoformat() if before and before.until > keeping.now() else None,
        "bindings": [],
        "tokens": [],
        "error": None,
    }
    if not push:
        return found
    try:
        with working.reach(understood, store) as there:
            found["bindings"] = made.strip(there.api, login)
            found["tokens"] = made.tokens(there.api, _namespaces(understood, login, found["bindings"]))
    except CausewayError as problem:
        found["error"] = str(problem)
    return found


def _namespaces(understood: Understood, login: str, bindings: list[str]) -> set[str]:
    """Where somebody had rights: also in an earlier run, which took them away."""
    access = understood.cluster.access
    users = [each for each in access.users if each.login == login]
    groups = {name for each in users for name in each.groups}
    return {
        *(each.partition("/")[0] for each in bindings if "/" in each),
        *(each.namespace for each in users),
        *(each.namespace for each in access.groups if each.name in groups),
    }


def _user(understood: Understood, login: str) -> User:
    known = {each.login: each for each in understood.cluster.access.users}
    if login in known:
        return known[login]
    where = understood.environment.spec_file
    raise UsageError(f"{where}: access.users has no {login}; {meant_one_of(login, known)}")


def _authority(understood: Understood, store: Store) -> Pair:
    from infra.drive.kubernetes import secrets

    found = secrets.authority(store)
    if found is None:
        options = understood.environment.options
        raise UsageError(f"{store} has no keys of a cluster yet; begin it: invoke cluster.up {options}")
    return found


def _life(understood: Understood, login: str, hours: int) -> timedelta:
    """At most as long as a VPN certificate of the user's would last."""
    most = 24 * keeping.days_for(understood, login)
    if not 0 < hours <= most:
        raise UsageError(f"--hours {hours}: from 1 to {most}, as long as a VPN profile would last")
    return timedelta(hours=hours)
