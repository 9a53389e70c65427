"""`invoke pool.drain`: drains a pool's groups before the pool is removed from the spec."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from infra.catalogue.regions import zone_id_prefix
from infra.commands import cluster_access, session
from infra.commands.environment import Project
from infra.commands.terminal import ask, note, say, say_json
from infra.errors import DriveError, UsageError
from infra.nearest import meant_one_of

if TYPE_CHECKING:
    from infra.commands.cluster_access import Reach
    from infra.drive.aws import Aws
    from infra.drive.pool_drain import Group

Work: TypeAlias = Mapping[str, Sequence[str]]
"""Instance → the pods at work on it."""
Asked: TypeAlias = Callable[[Collection[str]], Work] | None


def drain(
    project: Project,
    pool: str,
    sites: Sequence[str],
    *,
    zone: str,
    evict: bool,
    timeout: int,
    yes: bool,
    json: bool,
) -> int:
    """Close a pool's groups, or a zone of them, wait until the nodes there have no work (or evict it), and
    terminate them."""
    from infra.drive import pool_drain, pool_instances
    from infra.drive.aws import Aws

    environment, cluster = project.environment, project.cluster
    if timeout < 1:
        raise UsageError(f"--timeout {timeout}: pods need at least a second")
    env = {**os.environ, **session.credentials(environment, cluster)}
    aws = Aws(env)
    look = partial(_groups, aws, project, pool, tuple(sites), zone)
    where = f"{pool} in {zone}" if zone else pool
    again = f"--pool {pool}" + (f" --zone {zone}" if zone else "")
    groups = look()
    count = sum(len(group.instances) for group in groups)
    for group in groups:
        note(
            f"{group.site}: {group.name} has {len(group.instances)} instances "
            f"({pool_instances.listed(group.instances) or 'none'})"
        )
    with _workloads(project, evict=evict, timeout=timeout) as work:
        if count and not yes:
            what = "are terminated " + ("immediately" if work is None else "once no pod runs on them")
            question = f"{count} instances {what}. Drain {where}? Type yes:"
            said = ask(question)
            if said != "yes":
                why = f"{said!r} is not 'yes'" if said else "not confirmed; use --yes"
                raise UsageError(f"nothing was done: {why}")
        try:
            left = pool_drain.drain(
                look, aws, work or _none, _heard, beat=1 if env.get("AWS_ENDPOINT_URL") else pool_drain.BEAT
            )
        except KeyboardInterrupt:
            note(
                f"{where} starts no new nodes. Continue: invoke pool.drain {environment.options} {again}; "
                f"undo: invoke apply {environment.options}, and cluster.drain --undo of its nodes"
            )
            raise
    plan = f"invoke plan {environment.options}"
    if json:
        say_json({"pool": pool, "drained": count, "groups": [group.name for group in left]})
        return 0
    if zone:
        say(f"{pool} has no instances in {zone}, and starts none there.")
        say(f"Remove {zone} from the site's zones in {environment.spec_file}, then: {plan}")
        say("While the spec has it, an apply adds it to the pool again.")
        return 0
    say(f"{pool} has no instances in {', '.join(sorted(group.site for group in left))}.")
    for line in _next(project, pool, [group.site for group in left]):
        say(line)
    return 0


def _next(project: Project, pool: str, drained: Sequence[str]) -> Iterator[str]:
    """The next steps: what to delete from the spec."""
    environment, cluster = project.environment, project.cluster
    found = next((each for each in cluster.pools if each.name == pool), None)
    here = {group.site for group in found.groups} & set(drained) if found is not None else set()
    if found is not None and here:
        gone = (
            [f"pools.{pool}"]
            if here == {group.site for group in found.groups}
            else [f"pools.{pool}.regions.{site}" for site in sorted(here)]
        )
        what = ", ".join(gone)
        yield f"Delete {what} from {environment.spec_file}, then: invoke plan {environment.options}"
        yield "As long as the spec has it, an apply sets its minimum and maximum again."
    else:
        yield f"Next: invoke plan {environment.options}"


def _groups(aws: Aws, project: Project, pool: str, sites: Sequence[str], zone: str) -> list[Group]:
    """The pool's groups in AWS, or their part in a zone. Raises ``UsageError`` if there are none."""
    from infra.drive import pool_drain

    environment, cluster = project.environment, project.cluster
    regions = dict.fromkeys(
        region
        for region in [*(each.region for each in cluster.regions), *(each.region for each in cluster.retired)]
        # us-west-2a, the local zone us-west-2-lax-1a, and the id usw2-az1.
        if not zone or zone.startswith((region, f"{zone_id_prefix(region)}-"))
    )
    if not regions:
        hint = meant_one_of(zone, [each for region in cluster.regions for each in region.zones])
        raise UsageError(f"{zone}: a zone of no region of {environment.name}; {hint}")
    found = pool_drain.groups(aws, regions, environment=environment.name, pool=pool, zone=zone)
    if not found:
        hint = meant_one_of(pool, [each.name for each in cluster.pools])
        raise UsageError(f"{pool}: no group of that pool found in {environment.name}; {hint}")
    for site in sites:
        if site not in {group.site for group in found}:
            hint = meant_one_of(site, [group.site for group in found])
            raise UsageError(f"{pool} has no group in {site}; {hint}")
    return [group for group in found if not sites or group.site in sites]


@contextmanager
def _workloads(project: Project, *, evict: bool, timeout: int) -> Iterator[Asked]:
    """A function that returns the work on instances and cordons their nodes; None if there is no cluster."""
    if session.is_embedded(project.environment, project.cluster):
        note(f"{session.NO_MACHINES}: nothing works on the instances.")
        yield None
        return
    with cluster_access.reach(project) as there:
        if not there.api.ready():
            raise DriveError(
                "the cluster's API does not answer, so the pods on the pool's nodes are unknown; see: "
                f"invoke cluster.status {project.environment.options}"
            )
        yield partial(_at_work, there, evict=evict, timeout=timeout)


def _at_work(there: Reach, instances: Collection[str], *, evict: bool, timeout: int) -> Work:
    """Cordon the nodes of these instances (with ``evict``, drain them), and return the pods still on them."""
    from infra.drive.kubernetes import nodes

    for name in nodes.of_instances(there.api, instances).values():
        if evict:
            nodes.drain(there.kubectl, name, seconds=timeout, on_line=lambda line: note(f"  {line}"))
        elif not nodes.cordoned(there.api, name):
            nodes.cordon(there.kubectl, name)
    return nodes.work(there.api, instances)


def _none(_instances: Collection[str]) -> Work:
    return {}


def _heard(group: Group, work: Work) -> None:
    from infra.drive.pool_instances import listed

    pods = [pod for each in work.values() for pod in each]
    if pods:
        note(f"{group.site}: {len(work)} of {len(group.instances)} instances have work: {listed(pods)}")
    elif group.instances:
        note(f"{group.site}: {len(group.instances)} instances without work are terminated")
    else:
        note(f"{group.site}: empty")
