"""`invoke cluster.rotate-signing-key`: sign service account tokens with a new key, without invalidating any.

A token is valid for those who know its key. So all API servers know the new key, and AWS can read it, before
any server signs with it; the old key stays until no pod has a token signed by it. Therefore the command is
run twice, a day apart. The keys in the store show the progress of a rotation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from infra.commands import cluster_access, pki_store
from infra.commands.cluster import rotating
from infra.commands.cluster.steps import Steps
from infra.commands.cluster_access import Reach
from infra.commands.environment import Project
from infra.commands.machines.selection import Chosen
from infra.commands.terminal import note, say, say_json
from infra.drive import clock
from infra.errors import UsageError
from infra.nearest import listed

if TYPE_CHECKING:
    from datetime import datetime

    from infra.drive.secrets import Store
    from infra.model.kubernetes import WebIdentity


def rotate(project: Project, *, yes: bool, json: bool) -> int:
    """Rotate the key that signs tokens, continue an interrupted rotation, or remove the old key."""
    from infra.drive.kubernetes import access, lease, secrets

    environment = project.environment
    store = pki_store.store(project)
    steps = Steps(f"invoke cluster.rotate-signing-key {environment.options}")
    with steps, cluster_access.reach(project, store) as there:
        masters = rotating.all_masters(there)
        forgets = _forgets_from(store)
        if forgets is not None:
            _may_forget(there, store, forgets)
            note("The old key is removed: each API server and controller manager is restarted once.")
        else:
            if secrets.token_rotation(store) != "none":
                note("Continuing a rotation that was started before.")
            note("Each API server and controller manager is restarted twice, one master at a time.")
        rotating.agreed(project, yes=yes)
        with lease.held(there.api, there.another(), access.who(), "cluster.rotate-signing-key"):
            (_change if forgets is None else _forget)(there, steps, store, masters)
    forgets = _forgets_from(store)
    if json:
        say_json({"steps": steps.done, "forgets_from": forgets and forgets.isoformat()})
    elif forgets is None:
        say("Tokens are signed with the new key, and the previous one is removed.")
    else:
        say("Tokens are signed with the new key; those of the previous one are still accepted.")
        say(f"To remove it, from {forgets:%Y-%m-%d %H:%M} UTC on: {steps.again}")
    return 0


def publish(there: Reach, identity: WebIdentity) -> str:
    """Publish the keys with which AWS verifies tokens; returns what was done."""
    from infra.drive.kubernetes import issuer

    return issuer.publish(there.api, _s3(there, identity), identity, there.project.outputs)


def unreadable(there: Reach, identity: WebIdentity) -> Mapping[str, str]:
    """Issuers whose tokens AWS cannot verify, by URL, and why."""
    from infra.drive.kubernetes import issuer

    return issuer.unreadable(there.api, _s3(there, identity), identity, there.project.outputs)


def _change(there: Reach, steps: Steps, store: Store, masters: Sequence[Chosen]) -> None:
    from infra.drive.kubernetes import secrets

    def add() -> str:
        secrets.add_token_key(store)
        return "kept in the store"

    def promote() -> str:
        secrets.promote_token_key(store)
        return "it is to sign"

    def signs() -> str:
        secrets.sign_with_token_key(store, clock.now())
        return "remembered"

    take = partial(_master, there, store, last=False)
    if secrets.token_rotation(store) == "none":
        steps.step("a new key", add)
    if secrets.token_rotation(store) == "added":
        rotating.one_by_one(steps, masters, "verifies with the new key", take)
        if (identity := there.project.cluster.web_identity) is not None:
            steps.step("the keys are published", partial(publish, there, identity))
            steps.step("readers have the new key", partial(_waited, there, identity))
        steps.step("the new key comes first", promote)
    rotating.one_by_one(steps, masters, "signs with the new key", take)
    steps.step("no master signs with the old key", signs)


def _forget(there: Reach, steps: Steps, store: Store, masters: Sequence[Chosen]) -> None:
    from infra.drive.kubernetes import secrets

    def forget() -> str:
        secrets.drop_token_keys(store)
        return "forgotten"

    take = partial(_master, there, store, last=True)
    rotating.one_by_one(steps, masters, "forgets the old key", take)
    if (identity := there.project.cluster.web_identity) is not None:
        steps.step("the keys are published", partial(publish, there, identity))
    # Last, so that an interrupted run is continued until then.
    steps.step("the old key", forget)


def _forgets_from(store: Store) -> datetime | None:
    """When no pod has a token of the old key any more; None without an old key, or while it still signs."""
    from infra.drive.kubernetes import key_rotation, secrets

    since = secrets.token_key_since(store)
    return since + key_rotation.TOKEN_LIFE if since and secrets.token_rotation(store) == "promoted" else None


def _may_forget(there: Reach, store: Store, at: datetime) -> None:
    """Raise ``UsageError`` while a token of the old key may be in use."""
    from infra.drive.kubernetes import key_rotation, secrets

    if clock.now() < at:
        raise UsageError(
            f"the old key still verifies tokens of pods; it can be removed from {at:%Y-%m-%d %H:%M} UTC on"
        )
    if kept := key_rotation.lasting_tokens(there.api, secrets.old_token_keys(store)):
        raise UsageError(
            f"Secrets with a token of the old key that does not expire: {listed(kept)}; delete their "
            "`data.token`, which the controller manager writes again, and copy it to where it is used"
        )


def _waited(there: Reach, identity: WebIdentity) -> str:
    from infra.drive.kubernetes import issuer

    if issuer.signs_as(there.api) not in map(there.project.outputs.issuer, identity.issuers):
        return "AWS has none of them"
    seconds = issuer.seconds_to_wait(_s3(there, identity), identity, clock.now())
    time.sleep(seconds)
    return f"after {seconds:.0f} s"


def _s3(there: Reach, identity: WebIdentity) -> Any:
    from infra.commands import session
    from infra.drive.aws import Aws

    environment, cluster = there.project.environment, there.project.cluster
    return Aws({**os.environ, **session.credentials(environment, cluster)}).client("s3", identity.region)


def _master(there: Reach, store: Store, master: Chosen, *, last: bool) -> str:
    from dataclasses import replace

    from infra.drive.kubernetes import key_rotation, secrets

    keys = secrets.made(store, clock.now())
    if last:
        keys = replace(keys, accounts=secrets.without_old_token_keys(store))
    return rotating.taken(there, master, keys, key_rotation.TAKE_SERVICE_ACCOUNT_KEYS)
