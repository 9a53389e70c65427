"""Bakes one image: an AMI in every region, or nothing at all.

After any failure, what was created is removed: by Packer, then by a sweep over all regions, and, if this
process is killed, by the sweep of the next bake (``journal``). The lock file is not changed here: a bake
returns ids, and only of a complete image.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.drive.aws import Aws, RegionsError, aws_errors, each_region
from infra.drive.images import amis, build_resources, cleanup, inputs, packer
from infra.drive.images.amis import BAKE, INPUTS, SOURCE, Ami
from infra.drive.images.inputs import Inputs
from infra.drive.images.journal import Entry, Journal, new_id
from infra.drive.progress import PackerProgress
from infra.drive.secret_files import write_file
from infra.errors import DriveError, ToolError
from infra.files import Files
from infra.model.machines import Image

SPOT_PATIENCE: Final = 60.0
"""Seconds to wait for a Spot Instance; then an On-Demand one is used."""

_INSTANCE: Final = re.compile(r"Instance ID: (i-[0-9a-f]+)")
_FLEET: Final = "launching the build instance"

_SCARCE: Final = re.compile(
    r"InsufficientInstanceCapacity|UnfulfillableCapacity|SpotMaxPriceTooLow|MaxSpotInstanceCountExceeded"
    r"|SpotInstanceCountExceeded|sufficient \S+ capacity|no Spot capacity|Max spot instance count"
)
"""EC2's error codes if no Spot capacity is available, or none for this account ("Error codes",
CreateFleet)."""

_SHOWN: Final = 15
"""Lines of Packer's output that an error quotes."""

_OUR_TAGS: Final = "causeway:"


class BakeError(ToolError):
    """An image was not baked; nothing of the attempt is left."""

    phase = ""
    """Packer's phase, one of `infra.drive.images.packer.PHASES`; empty if Packer was not running."""


class StoppedBakeError(DriveError):
    """A bake was interrupted; nothing of it is left."""

    exit_code = 130


class LeftError(DriveError):
    """Resources of a bake could not be deleted."""


@dataclass(frozen=True, slots=True)
class Job:
    """The input of a bake from its environment."""

    environment: str
    build: Path
    files: Files
    """All rendered files, by path below ``build``."""
    regions: tuple[str, ...]
    """AWS regions that get the image; it is built in the first."""
    project: Path
    """The folder with ``cookbooks/`` and ``packer/``."""
    env: Mapping[str, str]
    """Packer's environment: that of this process, with credentials."""
    revision: str
    """The commit of the project, with ``-dirty`` if files differ from it; empty outside of git."""
    options: str
    clients: Mapping[str, Path]
    """AWS's name of an architecture → the verified package of the client that runs cookbooks."""
    subnet: str = ""
    ssh_from: str = ""
    private: bool = False
    """Whether the build instance has no public address and is reached by its private one, through the VPN."""
    polling: int = 15
    """Seconds between two polls of EC2."""
    spot_patience: float = SPOT_PATIENCE
    ssh_timeout: str = "10m"

    @property
    def region(self) -> str:
        return self.regions[0]

    @property
    def cookbooks(self) -> Path:
        return self.project / "cookbooks"

    @property
    def packer(self) -> Path:
        return self.project / "packer"


@dataclass(frozen=True, slots=True)
class Ready:
    """An image whose inputs are known, and its AMIs if it was baked with them already."""

    image: Image
    inputs: Inputs
    source: Ami
    """The source AMI: the newest one published."""
    present: Mapping[str, str] | None
    """AWS region → AMI, if all regions have one with exactly these inputs; else None."""


@dataclass(slots=True)
class _Run:
    """The progress of one run of Packer."""

    progress: PackerProgress
    guard: Callable[[str], None]
    """Called with the build instance as soon as it exists."""
    clock: Callable[[], float]
    instance: str = ""
    phase: str = ""
    since: float = 0.0
    failed_in: str = ""

    def said(self, line: packer.Said) -> None:
        if line.kind == "error" and not self.failed_in:
            self.failed_in = self.phase
        if found := _INSTANCE.search(line.text):
            self.instance = found[1]
            self.guard(self.instance)
        if phase := packer.phase_of(line.text):
            self.phase, self.since = phase, self.clock()
            self.progress.enter(phase)

    def waits_for_an_instance(self, patience: float) -> bool:
        """Whether it has waited for an instance for longer than ``patience`` seconds."""
        waiting = self.phase == _FLEET and not self.instance
        return waiting and self.clock() - self.since > patience


@dataclass(frozen=True, slots=True)
class _Oven:
    """One bake and its resources."""

    job: Job
    ready: Ready
    aws: Aws
    program: packer.Packer
    progress: PackerProgress
    journal: Journal
    entry: Entry


class _NoSpot(Exception):  # noqa: N818 - a state of the market
    """No Spot Instance was available in time."""


def prepare(job: Job, image: Image, aws: Aws) -> Ready:
    """Collect an image's inputs and look up AMIs that were baked from them. Changes nothing."""
    source = amis.newest_source(aws, job.region, image.source.owner, image.source.name, image.architecture)
    members = inputs.contents(job.files, image.name, job.cookbooks, job.packer)
    gathered = inputs.gather(
        job.files, image.name, source.id, members, inputs.archive(members), job.packer / "scripts"
    )
    found = amis.everywhere(amis.ours(aws, job.regions, image=image.name, inputs=gathered.digest))
    return Ready(
        image, gathered, source, {region: one.id for region, one in found.items()} if found else None
    )


def bake(
    job: Job, ready: Ready, aws: Aws, program: packer.Packer, progress: PackerProgress, *, spot: bool = True
) -> dict[str, str]:
    """Bake an image; returns AWS region → AMI, available in all regions.

    Raises ``BakeError`` with the failed phase and Packer's last lines; ``StoppedBakeError`` after Ctrl-C;
    ``LeftError`` if, in addition, something could not be deleted.
    """
    journal = Journal(job.build / "state")
    bake_id = new_id()
    name = f"{job.environment}-{ready.image.name}-{bake_id}"
    entry = Entry(bake_id, ready.image.name, name, job.region, job.regions)
    oven = _Oven(job, ready, aws, program, progress, journal, entry)
    with journal.running(entry):
        try:
            amis = _attempts(oven, spot)
        except BaseException as problem:
            progress.enter("cleaning up")
            _take_back(aws, journal, entry, problem, job.options)
            raise
        finally:
            progress.end()
        _take_back(aws, journal, entry, None, job.options)
    return amis


def recover(job: Job, aws: Aws, note: Callable[[str], None]) -> None:
    """Clean up after bakes that were killed. Raises ``LeftError`` if that fails."""
    journal = Journal(job.build / "state")
    with journal.dead() as entries:
        for entry in entries:
            note(f"The bake {entry.id} of {entry.image} was killed; removing what it made.")
            _take_back(aws, journal, entry, KeyboardInterrupt(), job.options)


def _attempts(oven: _Oven, spot: bool) -> dict[str, str]:
    """Bake on a Spot Instance, else on demand."""
    job, entry = oven.job, oven.entry
    folder = (job.build / "packer" / oven.ready.image.name).absolute()
    oven.progress.enter("preparing")
    packer.prepare(oven.program, folder, job.env)
    tags = _tags(job, oven.ready, entry)
    where = build_resources.place(
        oven.aws, job.region, job.environment, oven.ready.image.build_type, job.subnet
    )
    ssh_from = job.ssh_from or build_resources.own_address(job.env)
    own = build_resources.make(oven.aws, job.region, where, entry.id, ssh_from, tags, oven.journal.folder)
    archive = oven.journal.folder / f"{entry.id}.tar.gz"
    archive.write_bytes(oven.ready.inputs.payload)
    manifest = oven.journal.folder / f"{entry.id}.manifest.json"
    values = {
        "name": entry.name,
        "source_image": oven.ready.inputs.source,
        "run_tags": tags,
        "subnet": own.place.subnet,
        "public": not job.private,
        "security_groups": [own.security_group],
        "key_pair": own.key_pair,
        "private_key_file": str(own.private_key_file),
        "payload": str(archive),
        "client": str(job.clients[oven.ready.image.architecture].absolute()),
        "scripts": str(job.packer.absolute() / "scripts"),
        "manifest": str(manifest),
        "endpoint": job.env.get("AWS_ENDPOINT_URL", ""),
        "polling_seconds": job.polling,
        "ssh_timeout": job.ssh_timeout,
    }
    if not (spot and _on_spot(oven, folder, values)):
        _run(oven, folder, {**values, "spot": False})
    amis = _made(manifest, job.regions, entry)
    _require_imdsv2(oven.aws, amis)
    return amis


def _on_spot(oven: _Oven, folder: Path, values: Mapping[str, Any]) -> bool:
    """Run Packer on a Spot Instance; False if none was available."""
    try:
        _run(oven, folder, {**values, "spot": True})
    except _NoSpot:
        oven.progress.enter("no spot capacity: using an on-demand instance")
        return False
    return True


def _run(oven: _Oven, folder: Path, values: Mapping[str, Any]) -> None:
    """Run Packer once. Raises ``_NoSpot`` if it ended because no Spot Instance was available."""
    from time import monotonic

    job, entry, journal = oven.job, oven.entry, oven.journal
    variables = journal.folder / f"{entry.id}.vars.json"
    write_file(variables, json.dumps(values))

    def guard(instance: str) -> None:
        with aws_errors(f"close the metadata of {instance}", needs=("ec2:ModifyInstanceMetadataOptions",)):
            oven.aws.client("ec2", job.region).modify_instance_metadata_options(
                InstanceId=instance, HttpTokens="required", HttpPutResponseHopLimit=1
            )

    run = _Run(oven.progress, guard, monotonic)

    def beat() -> None:
        oven.progress.beat()
        if values["spot"] and run.waits_for_an_instance(job.spot_patience):
            raise _NoSpot

    ran = packer.build(
        oven.program,
        folder,
        [folder / "image.pkrvars.json", variables],
        log=journal.log(entry.id),
        lock=journal.packer_lock(entry.id),
        env=job.env,
        cwd=job.project,
        on_said=run.said,
        on_beat=beat,
        on_interrupt=oven.progress.interrupted,
    )
    if ran.interrupted:
        raise StoppedBakeError(f"the bake of {entry.image} was stopped; nothing of it is left")
    if ran.exit_code == 0:
        return
    if values["spot"] and not run.instance and _SCARCE.search("\n".join(ran.heard.lines)):
        raise _NoSpot
    raise _failed(entry, run, ran, journal.log(entry.id))


def _failed(entry: Entry, run: _Run, ran: packer.Ran, log: Path) -> BakeError:
    phase = run.failed_in or run.phase or "starting Packer"
    said = [*(ran.heard.failure or ran.heard.lines)][-_SHOWN:]
    error = BakeError(("packer", "build", entry.image), ran.exit_code, "\n".join(said))
    words = (
        f"{entry.image} was not baked: {phase} failed (packer: exit code {ran.exit_code}); all it said is in "
        f"{_shown(log)}"
    )
    error.phase = phase
    error.args = ("\n  ".join([words, *said]),)
    return error


def _shown(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _made(manifest: Path, regions: tuple[str, ...], entry: Entry) -> dict[str, str]:
    """Region → AMI, from Packer's manifest post-processor."""
    try:
        builds: list[dict[str, Any]] = json.loads(manifest.read_text(encoding="utf-8"))["builds"]
        pairs = dict(pair.split(":", 1) for pair in builds[-1]["artifact_id"].split(","))
    except (OSError, ValueError, KeyError, IndexError, TypeError) as problem:
        raise BakeError(
            ("packer", "build", entry.image), 0, f"its manifest can't be read: {problem}"
        ) from None
    missing = [region for region in regions if region not in pairs]
    if missing:
        raise BakeError(("packer", "build", entry.image), 0, f"it made no image in {', '.join(missing)}")
    return {region: pairs[region] for region in regions}


def _require_imdsv2(aws: Aws, amis: Mapping[str, str]) -> None:
    """Set the AMIs to require IMDSv2 on their instances (EC2 User Guide, "Configure the AMI")."""

    def require(region: str) -> None:
        with aws_errors(
            f"require IMDSv2 of {amis[region]} in {region}", needs=("ec2:ModifyImageAttribute",), quoting=True
        ):
            aws.client("ec2", region).modify_image_attribute(
                ImageId=amis[region], ImdsSupport={"Value": "v2.0"}
            )

    each_region(amis, require)


def _tags(job: Job, ready: Ready, entry: Entry) -> dict[str, str]:
    """The tags of all resources of a bake. A value has at most 256 characters (EC2 User Guide, "Tag
    restrictions")."""
    cookbooks = " ".join(f"{name}={version}" for name, version in ready.inputs.cookbooks.items())
    values = json.loads(job.files[f"packer/{ready.image.name}/image.pkrvars.json"])
    tags = {
        BAKE: entry.id,
        INPUTS: ready.inputs.digest,
        SOURCE: ready.inputs.source,
        f"{_OUR_TAGS}revision": job.revision,
        f"{_OUR_TAGS}cookbooks": cookbooks[:256],
    }
    return {**values["tags"], **{key: value for key, value in tags.items() if value}}


def _take_back(aws: Aws, journal: Journal, entry: Entry, problem: BaseException | None, options: str) -> None:
    """Delete the temporary resources of a successful bake; everything, if it failed."""
    try:
        cleanup.sweep(aws, entry, images=problem is not None)
    except (DriveError, RegionsError) as left:
        why = f"{problem}\n" if isinstance(problem, DriveError) else ""
        raise LeftError(
            f"{why}what the bake {entry.id} made could not be taken back: {left}\n"
            f"The next `invoke bake {options}`, or `invoke images.prune {options} --yes`, tries again; "
            f"until then all that has the tag {BAKE}={entry.id} costs"
        ) from None
    journal.done(entry)
