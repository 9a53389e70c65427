"""Machine images: bake them, list them, delete unused ones, and roll pools to new ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.commands.environment import Environment, Project, read_lock
from infra.commands.terminal import columns, note, say, say_json
from infra.drive import clock
from infra.errors import UsageError
from infra.nearest import listed, meant_one_of
from infra.shipped_files import ROOT

if TYPE_CHECKING:
    from datetime import datetime

    from infra.drive.aws import Aws
    from infra.drive.images.bake import Job, Ready
    from infra.drive.images.listing import Row
    from infra.drive.roll import Group
    from infra.model import Cluster
    from infra.model.machines import Image


def bake(
    project: Project,
    names: Sequence[str],
    *,
    everything: bool,
    dry_run: bool,
    on_demand: bool,
    subnet: str,
    ssh_from: str,
    private: bool,
    json: bool,
) -> int:
    """Bake images whose inputs changed, and write each one's AMI ids to the lock file as soon as they
    exist."""
    from infra.commands import rendering
    from infra.drive.images import bake as baking
    from infra.drive.images import packer
    from infra.drive.progress import PackerProgress

    images = _asked(project.cluster, names, everything=everything)
    if private and not ssh_from:
        raise UsageError("--private needs --ssh-from: the block that you reach the build instance from")
    program = packer.find()
    job, aws = _job(project, subnet=subnet, ssh_from=ssh_from, private=private)
    if not dry_run:
        _require_machines(project)
    rendering.write(project)
    ready = [baking.prepare(job, image, aws) for image in images]
    if dry_run:
        return _told(job, ready, json=json)
    # Before an instance is started, so that a failed download costs nothing.
    job = replace(job, clients=_clients(project, ready))
    baking.recover(job, aws, note)
    results = []
    for each in ready:
        baked = each.present is None
        amis = each.present or baking.bake(
            job, each, aws, program, PackerProgress(each.image.name), spot=not on_demand
        )
        kept = _keep(project, each.image.name, amis)
        results.append({**_row(job, each), "baked": baked, "images": dict(amis), "lock_changed": kept})
        if not json:
            what = "baked" if baked else "unchanged, not baked again"
            say(f"{each.image.name}: {what}")
            for region, ami in amis.items():
                say(f"  {region}  {ami}")
    if json:
        say_json(results)
    if any(result["lock_changed"] for result in results):
        note(
            f"{project.environment.lock_file} holds the new ids: commit it. Then `invoke apply "
            f"{project.environment.options}` launches by them, and `invoke roll` replaces what runs."
        )
    elif project.environment.rehearsed:
        note("A rehearsal: the lock file is left as it is.")
    return 0


def _clients(project: Project, ready: Sequence[Ready]) -> dict[str, Path]:
    """The client's package for each architecture of the images to be baked."""
    from infra.catalogue.releases import DEBIAN
    from infra.drive.client import package

    client, build = project.cluster.client, project.environment.build
    wanted = dict.fromkeys(each.image.architecture for each in ready if each.present is None)
    return {architecture: package(client, DEBIAN[architecture], build) for architecture in wanted}


def _asked(cluster: Cluster, names: Sequence[str], *, everything: bool) -> list[Image]:
    if not cluster.regions:
        raise UsageError(f"{cluster.environment} has no AWS region: its machines need no images")
    known = [image.name for image in cluster.images]
    if everything:
        return list(cluster.images)
    if not names:
        raise UsageError(f"no image given: --image {' or --image '.join(known)}, or --all")
    for name in names:
        if name not in known:
            raise UsageError(f"{name}: no such image in {cluster.environment}; {meant_one_of(name, known)}")
    return [cluster.image(name) for name in dict.fromkeys(names)]


def _job(project: Project, *, subnet: str = "", ssh_from: str = "", private: bool = False) -> tuple[Job, Aws]:
    from infra.commands.session import credentials
    from infra.drive.aws import Aws
    from infra.drive.images.bake import Job
    from infra.drive.images.inputs import revision

    environment, cluster = project.environment, project.cluster
    env = {**os.environ, **credentials(environment, cluster)}
    job = Job(
        environment=environment.name,
        build=environment.build.absolute(),
        files=project.files,
        regions=tuple(dict.fromkeys(region.region for region in cluster.regions)),
        project=ROOT,
        env=env,
        revision=revision(ROOT),
        options=environment.options,
        clients={},
        subnet=subnet,
        ssh_from=ssh_from,
        private=private,
        # An AWS endpoint on this computer responds immediately.
        polling=1 if env.get("AWS_ENDPOINT_URL") else 15,
    )
    return job, Aws(env)


def _require_machines(project: Project) -> None:
    """Raise ``UsageError`` if instances have no machines: Packer would wait for SSH until its timeout."""
    from infra.commands.session import embedded_folder, is_embedded
    from infra.drive import localaws

    environment = project.environment
    if not is_embedded(environment, project.cluster):
        return
    server = localaws.status(embedded_folder(environment).absolute())
    if server is None or not server.control.health().get("machines"):
        raise UsageError(
            "instances of the embedded AWS have no machines behind them, so nothing can be baked there; "
            f"see what would be baked: invoke bake {environment.options} --all --dry-run"
        )


def _row(job: Job, ready: Ready) -> dict[str, Any]:
    return {
        "image": ready.image.name,
        "inputs": ready.inputs.digest,
        "source": ready.inputs.source,
        "region": job.region,
        "regions": list(job.regions),
        "instance_type": ready.image.build_type,
        "cookbooks": dict(ready.inputs.cookbooks),
        "revision": job.revision,
    }


def _told(job: Job, ready: Sequence[Ready], *, json: bool) -> int:
    """Print what would be done."""
    if json:
        say_json([{**_row(job, each), "present": dict(each.present or {}) or None} for each in ready])
        return 0
    for each in ready:
        row = _row(job, each)
        say(f"{each.image.name}: {'would be baked' if each.present is None else 'is baked already'}")
        say(f"  inputs     {row['inputs'][:16]}")
        say(f"  from       {row['source']} ({each.image.source.name})")
        say(f"  on         {row['instance_type']} in {row['region']}")
        say(f"  copied to  {', '.join(job.regions[1:]) or 'no other region'}")
        for region, ami in (each.present or {}).items():
            say(f"  {region}  {ami}")
    return 0


def _keep(project: Project, image: str, amis: Any) -> bool:
    """Write an image's AMI ids into the lock file, atomically; returns whether that changed it.

    The file is read again under the lock, so that other changes made since, which may be an hour, are kept.
    """
    from infra.drive import workspace
    from infra.resolve.lockfile import dump, parse

    environment = project.environment
    if environment.rehearsed:
        return False
    ids = {region.name: amis[region.region] for region in project.cluster.regions}
    with workspace.locked(environment.build, timeout=60):
        before = read_lock(environment)
        lock = parse(before, str(environment.lock_file))
        after = dump(replace(lock, images={**lock.images, image: ids}))
        if after == before:
            return False
        _replace(environment, after)
    return True


def _replace(environment: Environment, text: str) -> None:
    fresh = environment.lock_file.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(environment.lock_file)


# -- What there is ----------------------------------------------------------------------------------------


def images(project: Project, *, containers: bool, sizes: bool, json: bool) -> int:
    """The cluster's machine images, or the container images that it pulls."""
    return pulled(project, sizes=sizes, json=json) if containers or sizes else listing(project, json=json)


def listing(project: Project, *, json: bool) -> int:
    """Each image in each region; 1 if one does not exist or is not baked."""

    from infra.drive.images import bake as baking
    from infra.drive.images import listing as listings

    cluster = project.cluster
    _asked(cluster, (), everything=True)
    job, aws = _job(project)
    sites = {region.name: region.region for region in cluster.regions}
    rows = []
    for image in cluster.images:
        ready = baking.prepare(job, image, aws)
        pools = {site: _pools(cluster, image.name, site) for site in sites}
        rows += listings.rows(aws, image, sites, ready.inputs.digest, ready.source, pools)
    now = clock.now()
    if json:
        from dataclasses import asdict

        say_json([{key: _plain(value) for key, value in asdict(row).items()} for row in rows])
    else:
        heading = ("image", "site", "ami", "state", "age", "base", "instances", "used by")
        say(columns(heading, [_cells(row, now) for row in rows]))
        _advise(rows, project.environment)
    return 1 if any(row.state in ("gone", "not baked") for row in rows) else 0


def _pools(cluster: Cluster, image: str, site: str) -> tuple[str, ...]:
    """The users of an image at a site in the spec."""
    pools = [
        f"pool {pool.name}"
        for pool in cluster.pools
        if pool.image == image and any(group.site == site for group in pool.groups)
    ]
    masters = cluster.control_plane.masters if cluster.control_plane else ()
    singles = [
        f"{each.role} {each.hostname}"
        for each in (*masters, *cluster.ssh_nodes, *cluster.access_gateways)
        if each.image == image and each.site == site
    ]
    return (*pools, *singles)


def _cells(row: Row, now: datetime) -> tuple[str, ...]:
    base = _days(row.base_created, now)
    if row.newer_base is not None:
        base += f", newer: {_days(row.newer_base, now)}"
    count = f"{row.instances}" + (f", {row.behind} on older" if row.behind else "")
    cells = (row.image, row.site, row.ami or "-", row.state, _days(row.created, now), base, count)
    return (*cells, listed(row.users, most=3))


def _days(when: datetime | None, now: datetime) -> str:
    return "-" if when is None else f"{(now - when).days} d"


def _plain(value: object) -> object:
    from datetime import datetime

    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


def _advise(rows: Sequence[Row], environment: Environment) -> None:
    """Print the next steps."""
    bake = f"invoke bake {environment.options} --image"
    for state, words in (
        ("not baked", "runs the published Ubuntu image and sets itself up at first boot"),
        ("gone", "is locked to an image that does not exist"),
        ("changed", "was baked from inputs that have changed since"),
    ):
        for name in dict.fromkeys(row.image for row in rows if row.state == state):
            note(f"{name} {words}: {bake} {name}")
    for name in dict.fromkeys(row.image for row in rows if row.newer_base is not None):
        note(f"{name}: a newer base image with security updates is published: {bake} {name}")


# -- Container images -------------------------------------------------------------------------------------


def pulled(project: Project, *, sizes: bool, json: bool) -> int:
    """Each container image that the cluster's nodes pull; 1 if the list is incomplete.

    ``sizes``: query the registries for digests and sizes.
    """
    from infra.catalogue.releases import DEBIAN
    from infra.drive import registries
    from infra.render.kubernetes import containers

    cluster = project.cluster
    if cluster.control_plane is None:
        raise UsageError(
            f"{project.environment.spec_file} has no control plane: it has no AWS site for masters"
        )
    found = containers.pulled(cluster, project.outputs)
    problems = list(found.unknown)
    rows: list[dict[str, Any]] = [
        {
            "image": each.name,
            "registry": each.registry,
            "repository": each.repository,
            "tag": each.tag or None,
            "digest": each.digest or None,
            "size": None,
            "used_by": list(each.users),
        }
        for each in found.images
    ]
    if sizes:
        # Physical machines are x86_64.
        architectures = {DEBIAN[each.architecture] for each in cluster.images} | {DEBIAN["x86_64"]}
        for row, said in zip(rows, registries.ask_all(found.images, architectures), strict=True):
            if isinstance(said, registries.Manifest):
                row |= {"digest": said.digest, "size": said.size}
            else:
                problems.append(str(said))
    if json:
        say_json(rows)
    else:
        say(columns(("image", "used by", "digest", "size"), [_of_container(row) for row in rows]))
        known = [row["size"] for row in rows if row["size"] is not None]
        say(f"{len(rows)} images" + (f", {_mebibytes(sum(known))} compressed" if known else ""))
    for each in found.images:
        if each.repository == "kube-apiserver":
            note(
                f"The control plane's images are those of the tested release, {each.tag}. Machines install "
                "the newest release in their package archive: compare `kubeadm config images list`."
            )
    for addon in cluster.kubernetes.addons:
        if addon.values:
            note(f"{addon.name}: the spec sets values of its chart; images that these name are not listed")
    for problem in problems:
        note(problem)
    return 1 if problems else 0


def _of_container(row: dict[str, Any]) -> tuple[str, ...]:
    digest = row["digest"]
    size = "-" if row["size"] is None else _mebibytes(row["size"])
    return row["image"], listed(row["used_by"], most=3), digest[:19] if digest else "-", size


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


# -- What may go ------------------------------------------------------------------------------------------


def prune(project: Project, *, keep: int, yes: bool, json: bool) -> int:
    """Deregister images that no lock file, group, launch template or instance uses, except the newest of
    each."""

    from infra.drive.images import amis, cleanup
    from infra.drive.images import bake as baking
    from infra.drive.images import prune as pruning
    from infra.drive.images.usage import uses

    if keep < 0:
        raise UsageError("--keep is a number of images, 0 or more")
    environment, cluster = project.environment, project.cluster
    _asked(cluster, (), everything=True)
    job, aws = _job(project)
    if yes:
        baking.recover(job, aws, note)
    found = amis.ours(
        aws, job.regions, environment=environment.name, role="image", **{"managed-by": "causeway"}
    )
    verdicts = pruning.decide(found, _locked(), uses(aws, job.regions), keep)
    strays = pruning.strays(aws, job.regions, environment.name, clock.now())
    going = [verdict for verdict in verdicts if not verdict.stays]
    if yes:
        pruning.remove(aws, verdicts)
        for entry in strays:
            cleanup.sweep(aws, entry, images=False)
    if json:
        say_json(
            {
                "done": yes,
                "images": [
                    {
                        "image": verdict.image,
                        "bake": verdict.bake,
                        "created": verdict.created.isoformat(),
                        "stays": verdict.stays,
                        "why": verdict.why,
                        "amis": {one.region: one.id for one in verdict.amis},
                        "snapshots": [each for one in verdict.amis for each in one.snapshots],
                    }
                    for verdict in verdicts
                ],
                "left_by_bakes": [entry.id for entry in strays],
            }
        )
        return 0
    for verdict in verdicts:
        what = "stays" if verdict.stays else "removed" if yes else "goes"
        say(f"{verdict.image}  {verdict.bake}  {what}: {verdict.why}")
        for one in verdict.amis:
            say(f"  {one.region}  {one.id}  {len(one.snapshots)} snapshot{'s' * (len(one.snapshots) != 1)}")
    for entry in strays:
        say(f"left by the bake {entry.id}: {'removed' if yes else 'goes'}")
    if not going and not strays:
        say("Nothing to remove.")
    elif not yes:
        note("Nothing was changed: --yes removes what goes.")
    return 0


def _locked() -> dict[str, str]:
    """AMI → the lock file that contains it, of all environments, as an account may serve several."""
    from infra.commands.environment import SPECS
    from infra.resolve.lockfile import parse

    locked: dict[str, str] = {}
    for file in sorted(SPECS.glob("*.lock.yaml")):
        lock = parse(file.read_text(encoding="utf-8"), str(file))
        locked |= {ami: str(file) for sites in lock.images.values() for ami in sites.values()}
    return locked


# -- Rolling ----------------------------------------------------------------------------------------------


def roll(
    project: Project,
    pool_name: str,
    sites: Sequence[str],
    *,
    min_healthy: int,
    max_healthy: int,
    protected: str,
    checkpoints: Sequence[str],
    cancel: bool,
    wait: bool,
    json: bool,
) -> int:
    """Replace a pool's instances by its current launch template; 1 if a refresh did not succeed."""
    from dataclasses import asdict
    from typing import cast, get_args

    from infra.drive import roll as rolling

    environment, cluster = project.environment, project.cluster
    groups = _groups(cluster, pool_name, sites)
    if protected not in get_args(rolling.Protected):
        raise UsageError(f"--protected is one of {', '.join(get_args(rolling.Protected))}")
    percentages = tuple(int(each) if each.isdecimal() else 0 for each in checkpoints)
    preferences = rolling.Preferences(
        min_healthy, max_healthy, cast("rolling.Protected", protected), percentages
    )
    job, aws = _job(project)
    if cancel:
        stopped = rolling.cancel(aws, groups)
        for group in groups:
            what = (
                "cancelled; instances that were replaced stay" if group in stopped else "no refresh to cancel"
            )
            say(f"{group.region}  {group.name}  {what}")
        return 0
    refreshes = rolling.start(aws, groups, preferences, f"invoke apply {environment.options}")

    def heard(one: rolling.Refresh) -> None:
        left = f", {one.left} to go" if one.left else ""
        reason = f": {one.reason}" if one.reason else ""
        note(f"{one.group.region}  {one.group.name}  {one.status} {one.percent} %{left}{reason}")

    if wait:
        try:
            refreshes = rolling.follow(
                aws, refreshes, heard, beat=1 if job.env.get("AWS_ENDPOINT_URL") else 10
            )
        except KeyboardInterrupt:
            again = f"invoke roll {environment.options} --pool {pool_name}"
            note(f"The refresh continues. `{again}` watches it again, `{again} --cancel` stops it.")
            raise
    if json:
        say_json([asdict(one) for one in refreshes])
    else:
        for one in refreshes:
            say(f"{one.group.region}  {one.group.name}  {one.status}")
    return 1 if any(one.ended and one.status != "Successful" for one in refreshes) else 0


def _groups(cluster: Cluster, pool_name: str, sites: Sequence[str]) -> list[Group]:
    from infra.drive.roll import Group

    pools = {pool.name: pool for pool in cluster.pools}
    if pool_name not in pools:
        raise UsageError(
            f"{pool_name}: no such pool in {cluster.environment}; {meant_one_of(pool_name, pools)}"
        )
    groups = {group.site: group for group in pools[pool_name].groups}
    for site in sites:
        if site not in groups:
            raise UsageError(f"{pool_name} has no group in {site}; {meant_one_of(site, groups)}")
    return [
        Group(cluster.region(site).region, group.name, group.image_id)
        for site, group in groups.items()
        if not sites or site in sites
    ]
