"""`invoke cluster.rotate-encryption`: encrypt secrets at rest with a new key, and discard the old one.

As in Kubernetes, "Rotate a decryption key": all API servers can read with the new key before one writes with
it, and the old one is removed once nothing is encrypted with it. The keys in the store show the progress of
a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from infra.commands import cluster_access, pki_store
from infra.commands.cluster.steps import Steps, wait_for
from infra.commands.cluster_access import Reach
from infra.commands.environment import Project
from infra.commands.machines.selection import Chosen, choose
from infra.commands.terminal import ask, note, say, say_json
from infra.drive import clock
from infra.errors import DriveError, UsageError

if TYPE_CHECKING:
    from infra.drive.kubernetes.secrets import Keys
    from infra.drive.secrets import Store

API_SECONDS: Final = 300


def rotate(project: Project, *, yes: bool, json: bool) -> int:
    """Rotate the encryption key, or continue an interrupted rotation."""
    from infra.drive.kubernetes import access, lease, secrets

    environment = project.environment
    store = pki_store.store(project)
    steps = Steps(f"invoke cluster.rotate-encryption {environment.options}")
    with steps, cluster_access.reach(project, store) as there:
        masters = all_masters(there)
        if secrets.rotation(store) != "none":
            note("Continuing a rotation that was started before.")
        note("Each API server is restarted three times, one at a time; all secrets are rewritten.")
        agreed(project, yes=yes)
        with lease.held(there.api, there.another(), access.who(), "cluster.rotate-encryption"):
            _run(there, steps, store, masters)
    if json:
        say_json({"steps": steps.done})
    else:
        say("Secrets are encrypted with a new key, and the previous one is deleted.")
        say("Copies of etcd from before today need the old one: it is in backups of the secrets store alone.")
    return 0


def all_masters(there: Reach) -> list[Chosen]:
    """All masters. Raises ``DriveError`` if the API does not answer."""
    if not there.api.ready():
        raise DriveError("the API does not answer, and every master is needed; see invoke cluster.status")
    return [each for each in choose(there.project, "", ()) if each.is_master]


def agreed(project: Project, *, yes: bool, what: str = "Rotate the key of") -> None:
    """Raise ``UsageError`` unless the user types the environment's name, or ``yes`` is set."""
    name = project.environment.name
    if not yes and ask(f"{what} {name}? Type its name:") != name:
        raise UsageError("nothing was done: not confirmed (--yes confirms without a terminal)")


def _run(there: Reach, steps: Steps, store: Store, masters: Sequence[Chosen]) -> None:
    from infra.drive.kubernetes import secrets

    def add() -> str:
        secrets.add_encryption_key(store)
        return "kept in the store"

    def promote() -> str:
        secrets.promote_encryption_key(store)
        return "it writes from now on"

    def forget() -> str:
        secrets.drop_encryption_keys(store)
        return "forgotten"

    if secrets.rotation(store) == "none":
        steps.step("a new key", add)
    if secrets.rotation(store) == "added":
        _everywhere(there, steps, store, masters, "reads with the new key")
        steps.step("the new key comes first", promote)
    _everywhere(there, steps, store, masters, "writes with the new key")
    steps.step("rewrite every secret", lambda: _rewritten(there))
    _everywhere(there, steps, store, masters, "forgets the old key", last=True)
    # Last, so that an interrupted run is continued until then.
    steps.step("the old key", forget)


def _everywhere(
    there: Reach, steps: Steps, store: Store, masters: Sequence[Chosen], what: str, *, last: bool = False
) -> None:
    one_by_one(steps, masters, what, partial(_master, there, store, last=last))


def one_by_one(steps: Steps, masters: Sequence[Chosen], what: str, work: Callable[[Chosen], str]) -> None:
    """Run a step for each master in turn."""
    for master in masters:
        steps.step(f"{master.name} {what}", partial(work, master))


def _master(there: Reach, store: Store, master: Chosen, *, last: bool) -> str:
    from dataclasses import replace

    from infra.drive.kubernetes import key_rotation, secrets

    keys = secrets.made(store, clock.now())
    if last:
        keys = replace(keys, encryption=secrets.without_old_keys(store))
    return taken(there, master, keys, key_rotation.TAKE_ENCRYPTION_KEYS)


def taken(there: Reach, master: Chosen, keys: Keys, script: str) -> str:
    """Copy the keys to a master, and restart its API server with ``script``."""
    from infra.drive.kubernetes import joining
    from infra.drive.machines.converge import write_secrets
    from infra.drive.ssh import opened

    with opened(master.fqdn) as remote:
        write_secrets(remote.machine, joining.secret_files(keys, None, master=True))
        remote.run(script)
    if not wait_for(there.api.ready, seconds=API_SECONDS):
        raise DriveError(f"the API does not answer after {API_SECONDS // 60} minutes; there: crictl ps -a")
    return "its API server was restarted"


def _rewritten(there: Reach) -> str:
    from infra.drive.kubernetes import key_rotation

    return f"{key_rotation.rewrite_secrets(there.api)} secrets"
