"""`invoke cluster.change-issuer`: masters get the spec's token issuers, without invalidating any token.

A token names its issuer, and is valid where that issuer is accepted. So all API servers accept the new
issuer, and AWS can read its keys, before any server signs with it; the old issuer stays until no pod has a
token of it. The API servers' flags show the progress of a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from infra.commands import cluster_access
from infra.commands.cluster import rotating, signing
from infra.commands.cluster.steps import Steps, wait_for
from infra.commands.cluster_access import Reach
from infra.commands.environment import Project
from infra.commands.machines.selection import Chosen
from infra.commands.terminal import note, say, say_json
from infra.drive import clock
from infra.errors import DriveError, UsageError
from infra.nearest import listed

if TYPE_CHECKING:
    from datetime import datetime

    from infra.model.kubernetes import WebIdentity


_READABLE_SECONDS: Final = 120
"""CloudFront caches "not found" for 10 s, and an older copy for a minute."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change from the masters' issuers to the spec's. Issuers are URLs; the first of a list signs."""

    masters: Sequence[Chosen]
    wanted: tuple[str, ...]
    configured: tuple[str, ...]
    """The issuers in kubeadm's configuration, for all masters."""
    running: Sequence[tuple[str, ...]]
    """The issuers of each master's running API server."""
    forgets_from: datetime | None
    """When the last token of another issuer expires; None if that is counted from this run on."""

    @property
    def accepts(self) -> bool:
        """Whether an API server must accept a new issuer."""
        return any(not {*self.wanted} <= {*each} for each in self.running)

    @property
    def switches(self) -> bool:
        """Whether an API server signs as another issuer than the spec's first."""
        return any(each[0] != self.wanted[0] for each in self.running)

    @property
    def old(self) -> tuple[str, ...]:
        """Issuers that are accepted and no longer in the spec."""
        known = dict.fromkeys(url for each in (self.configured, *self.running) for url in each)
        return tuple(url for url in known if url not in self.wanted)


def change(project: Project, *, yes: bool, json: bool) -> int:
    """Accept the spec's issuers, sign as the first, and remove others once their tokens have expired."""
    from infra.drive.kubernetes import access, lease

    identity = known(project)
    environment = project.environment
    steps = Steps(f"invoke cluster.change-issuer {environment.options}")
    with steps, cluster_access.reach(project) as there:
        found = _change(there)
        _told(found)
        rotating.agreed(project, yes=yes, what="Change the issuers of tokens of")
        with lease.held(there.api, there.another(), access.who(), "cluster.change-issuer"):
            _run(there, steps, identity, found)
        after = _change(there)
    if json:
        until = after.old and after.forgets_from
        say_json(
            {
                "steps": steps.done,
                "signs": after.wanted[0],
                "old": list(after.old),
                "forgets_from": until.isoformat() if until else None,
            }
        )
        return 0
    say(f"Tokens are signed as {after.wanted[0]}.")
    if after.old and after.forgets_from:
        say(f"Those of {listed(after.old)} are still accepted; to stop that, from")
        say(f"{after.forgets_from:%Y-%m-%d %H:%M} UTC on: {steps.again}")
    elif found.old:
        say(f"{listed(found.old)} is no longer accepted; to take it out of AWS: invoke apply")
    return 0


def known(project: Project) -> WebIdentity:
    """The issuers in the spec. Raises ``UsageError`` while AWS has not assigned the URL of one."""
    identity = project.cluster.web_identity
    environment = project.environment
    if identity is None:
        raise UsageError(
            f"{environment.spec_file} gives pods no roles at AWS, so AWS needs no issuer of their tokens; "
            "`research` and buckets with `volumes` come with such roles"
        )
    for issuer in identity.issuers:
        if project.outputs.issuer(issuer) is None:
            options = environment.options
            raise UsageError(
                f"kubernetes.issuers: {issuer.served_by} is not applied from here, and AWS chooses its URL; "
                f"run `invoke apply {options}`, or `invoke outputs {options}` where somebody else has"
            )
    return identity


def _change(there: Reach) -> Change:
    """The current change. Raises ``DriveError`` if a master has no API server, as all take part."""
    from infra.drive.kubernetes import api_server_issuers, key_rotation
    from infra.render.kubernetes import kubeadm

    cluster, api = there.project.cluster, there.api
    masters = rotating.all_masters(there)
    running = [api_server_issuers.running(api, each.name) for each in masters]
    if away := [master.name for master, issuers in zip(masters, running, strict=True) if not issuers]:
        raise DriveError(f"the API server of {listed(away)} is not ready, and every master is needed")
    wanted = kubeadm.issuers(cluster, there.project.outputs)
    noted = api_server_issuers.signer(api)
    since = noted[1] if noted is not None and noted[0] == wanted[0] else None
    return Change(
        masters,
        wanted,
        api_server_issuers.configured(api, kubeadm.own_issuer(cluster)),
        running,
        since and since + key_rotation.TOKEN_LIFE,
    )


def _told(found: Change) -> None:
    """Print the planned steps. Raises ``UsageError`` if the only one left is to wait."""
    passes = found.accepts + found.switches
    if passes:
        note(f"Each API server is restarted {'twice' if passes == 2 else 'once'}, one master at a time.")
    elif found.old and found.forgets_from is not None:
        if clock.now() < found.forgets_from:
            raise UsageError(
                f"pods may hold tokens of {listed(found.old)}, which is still accepted; it can be removed "
                f"from {found.forgets_from:%Y-%m-%d %H:%M} UTC on"
            )
        note(f"{listed(found.old)} is forgotten: each API server is restarted once.")


def _run(there: Reach, steps: Steps, identity: WebIdentity, found: Change) -> None:
    from infra.drive.kubernetes import api_server_issuers

    def noted() -> str:
        api_server_issuers.note_signer(there.api, found.wanted[0], clock.now())
        return "remembered"

    steps.step("the keys are published", partial(signing.publish, there, identity))
    steps.step("AWS can read them", partial(_readable, there, identity))
    stays = tuple(url for url in found.configured if url not in found.wanted)
    if found.accepts:
        new = tuple(url for url in found.wanted if url not in found.configured)
        _everywhere(there, steps, found.masters, (*found.configured, *new), "accepts all issuers")
    if found.switches:
        _everywhere(there, steps, found.masters, (*found.wanted, *stays), f"signs as {found.wanted[0]}")
    if found.switches or found.forgets_from is None:
        steps.step("no master signs as another issuer", noted)
    elif found.old and found.forgets_from <= clock.now():
        _everywhere(there, steps, found.masters, found.wanted, f"forgets {listed(found.old)}")


def _readable(there: Reach, identity: WebIdentity) -> str:
    """Check that AWS accepts the issuers' tokens; otherwise raise ``DriveError`` before any API server signs
    as one."""
    faults: Mapping[str, str] = {}

    def all_are() -> bool:
        nonlocal faults
        faults = signing.unreadable(there, identity)
        return not faults

    if not wait_for(all_are, seconds=_READABLE_SECONDS, beat=5):
        raise DriveError(
            f"after {_READABLE_SECONDS} s they can't be read from here, so AWS would refuse tokens: "
            f"{'; '.join(faults.values())}. For a bucket, the account or its organization may forbid public "
            "objects, which is what `kubernetes.issuers: [cloudfront]` is for; nothing was changed on masters"
        )
    return "they are read over HTTPS"


def _everywhere(
    there: Reach, steps: Steps, masters: Sequence[Chosen], issuers: tuple[str, ...], what: str
) -> None:
    """Set the issuers in kubeadm's configuration, for future masters, then on each master in turn."""
    from infra.drive.kubernetes import api_server_issuers
    from infra.render.kubernetes import kubeadm

    if api_server_issuers.configured(there.api, "") != issuers:
        arguments = kubeadm.issuer_arguments(there.project.cluster, issuers)
        api_server_issuers.configure(there.api, arguments)
    rotating.one_by_one(steps, masters, what, partial(_master, there, issuers))


def _master(there: Reach, issuers: tuple[str, ...], master: Chosen) -> str:
    from infra.drive.kubernetes import api_server_issuers
    from infra.drive.ssh import opened

    if api_server_issuers.running(there.api, master.name) == issuers:
        return "it does"
    configuration = api_server_issuers.configuration_of(there.api, master.name)
    with opened(master.fqdn) as remote:
        remote.run(api_server_issuers.WRITE, configuration)

    def restarted() -> bool:
        try:
            return api_server_issuers.running(there.api, master.name) == issuers and there.api.ready()
        except DriveError:
            return False

    if not wait_for(restarted, seconds=rotating.API_SECONDS):
        raise DriveError(
            f"the API server of {master.name} does not run with them after "
            f"{rotating.API_SECONDS // 60} minutes; there: crictl ps -a, journalctl -u kubelet"
        )
    return "its API server was restarted"
