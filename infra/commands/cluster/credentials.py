"""`invoke kubeconfig`, and the cluster's part of `invoke vpn.revoke`."""

from __future__ import annotations

import json as jsonlib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from infra.commands import cluster_access, pki_store
from infra.commands.environment import Project
from infra.commands.terminal import say, say_json
from infra.drive import clock
from infra.errors import UsageError
from infra.nearest import meant_one_of

if TYPE_CHECKING:
    from infra.drive.kubernetes.signing import Signed
    from infra.drive.secrets import Store
    from infra.drive.ssh import Machine
    from infra.model.platform import Oidc, User

HOURS: Final = 12


def kubeconfig(
    project: Project,
    login: str,
    *,
    hours: int,
    by_exec: bool,
    certificate: bool = False,
    out: str,
    json: bool,
) -> int:
    """Write a user's kubeconfig: with the spec's OIDC issuer if it has one, unless a certificate is
    requested."""
    oidc = project.cluster.access.oidc
    if oidc is not None and not by_exec and not certificate:
        return _single_sign_on(project, _user(project, login), oidc, out=out, json=json)
    from infra.drive.kubernetes import access
    from infra.drive.kubernetes import kubeconfig as made

    user = _user(project, login)
    life = made.EXEC_LIFE if by_exec else _life(project, login, hours)
    signed = _issued(project, user, life)
    where = access.endpoint(project.cluster)
    name = project.cluster.name
    if by_exec:
        made.keep(project.environment.build, login, signed.pair)
        document = made.with_command(
            where,
            signed.authority,
            name,
            login,
            folder=Path.cwd(),
            environment=project.environment.name,
        )
        until = None
    else:
        document = made.with_certificate(where, signed.authority, name, login, signed.pair)
        until = signed.pair.ends
    path = _written(project, user, document, out)
    if json:
        say_json({"file": str(path), "until": until.isoformat() if until else None})
    elif until:
        say(f"{path}, good until {until:%Y-%m-%d %H:%M} UTC. It is a key: hand it over safely.")
    else:
        say(f"{path}: it contains no key; it works for engineers who may become root on a master.")
    if not json:
        say(f"For example: KUBECONFIG={path} kubectl get pods")
    return 0


def _single_sign_on(project: Project, user: User, oidc: Oidc, *, out: str, json: bool) -> int:
    from infra.drive.kubernetes import access, signing
    from infra.drive.kubernetes import kubeconfig as made

    environment = project.environment
    if user.login not in oidc.people.values():
        raise UsageError(
            f"{environment.spec_file}: access.users.{user.login} has no email, and access.oidc knows people "
            "by it; add it, or make a certificate with --certificate"
        )
    authority = signing.authority(_masters(project, pki_store.store(project)))
    where = access.endpoint(project.cluster)
    document = made.with_single_sign_on(where, authority, project.cluster.name, user.login, oidc)
    path = _written(project, user, document, out)
    if json:
        say_json({"file": str(path), "until": None})
        return 0
    say(f"{path}: it contains no key; kubectl asks {oidc.issuer} who {user.login} is.")
    say(f"For example: KUBECONFIG={path} kubectl get pods")
    return 0


def _written(project: Project, user: User, document: dict[str, Any], out: str) -> Path:
    from infra.drive.secret_files import write_file

    document["contexts"][0]["context"]["namespace"] = user.namespace
    path = Path(out) if out else project.environment.build / "kubeconfigs" / f"{user.login}.yaml"
    write_file(path, jsonlib.dumps(document, indent=2) + "\n")
    return path


def credential(project: Project, login: str) -> int:
    """Print an ExecCredential for kubectl. kubectl runs this for every command, so the last certificate is
    used until shortly before it expires."""
    from infra.drive.kubernetes import kubeconfig as made

    user = _user(project, login)
    build = project.environment.build
    made.require_admitted(pki_store.store(project), login, clock.now())
    pair = made.kept(build, login, clock.now())
    if pair is None:
        life = min(made.EXEC_LIFE, _life(project, login, HOURS))
        pair = _issued(project, user, life).pair
        made.keep(build, login, pair)
    say_json(made.exec_credential(pair))
    return 0


def _user(project: Project, login: str) -> User:
    known = {each.login: each for each in project.cluster.access.users}
    if login in known:
        return known[login]
    where = project.environment.spec_file
    raise UsageError(f"{where}: access.users has no {login}; {meant_one_of(login, known)}")


def _issued(project: Project, user: User, life: timedelta) -> Signed:
    """A certificate signed through a master. The CA's key stays in the store."""
    from infra.drive.kubernetes import kubeconfig as made

    store = pki_store.store(project)
    return made.issue(store, _masters(project, store), user.login, user.groups, clock.now(), life)


def _masters(project: Project, store: Store) -> list[Machine]:
    from infra.drive.kubernetes import secrets
    from infra.drive.ssh import Machine

    cluster_access.real(project)
    plane = project.cluster.control_plane
    if plane is None or not secrets.exist(store):
        raise UsageError(cluster_access.not_begun(project, store))
    return [Machine(each.fqdn) for each in plane.masters]


def _life(project: Project, login: str, hours: int) -> timedelta:
    """The lifetime, at most that of a VPN certificate of the user."""
    most = 24 * pki_store.days_for(project, login)
    if not 0 < hours <= most:
        raise UsageError(f"--hours {hours}: from 1 to {most}, as long as a VPN profile would last")
    return timedelta(hours=hours)
