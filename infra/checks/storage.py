"""Storage, and the locations of state and secrets (STO)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from infra.catalogue import limits, regions
from infra.checks.facts import Facts
from infra.checks.phrases import listed, meant, meant_one_of, repeated
from infra.checks.registry import Finding, check
from infra.errors import Level, Path, dotted
from infra.schema.sites import NodeRole

_SYSTEM: Final = frozenset(
    {
        "/",
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/lib",
        "/lib64",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/sys",
    }
    | {"/tmp", "/usr", "/var", "/var/lib", "/var/log"}  # noqa: S108  names of places, not files of ours
)
"""Folders that a mount would hide from the system (Filesystem Hierarchy Standard)."""
_SYSTEM_BELOW: Final = ("/bin/", "/boot/", "/dev/", "/etc/", "/lib/", "/proc/", "/run/", "/sbin/", "/sys/")


@check("STO001", Level.ERROR, "Storage is in a region that is not an AWS site of the spec.", waivable=False)
def known_region(facts: Facts) -> Iterator[Finding]:
    stated: list[tuple[Path, str]] = [
        (("storage", "efs", name, "regions", index), site)
        for name, efs in facts.spec.storage.efs.items()
        for index, site in enumerate(efs.regions or ())
    ]
    stated += [
        (("storage", "s3", name, "region"), bucket.region)
        for name, bucket in facts.spec.storage.s3.items()
        if bucket.region is not None
    ]
    for path, site in stated:
        if site not in facts.places:
            message = f"{site} is not an AWS site of this spec"
            yield Finding(path, message, meant_one_of(site, facts.places))


@check("STO002", Level.ERROR, "AWS storage without a region.", waivable=False)
def no_region(facts: Facts) -> Iterator[Finding]:
    storage = facts.spec.storage
    for kind, names in (("efs", storage.efs), ("s3", storage.s3)):
        for name in names if not facts.places else ():
            yield Finding(
                ("storage", kind, name), "there is not an AWS region for it", "add one, or take nfs"
            )


@check("STO003", Level.ERROR, "A file system names a region twice.", waivable=False)
def region_twice(facts: Facts) -> Iterator[Finding]:
    for name, efs in facts.spec.storage.efs.items():
        for index, site in repeated(efs.regions or ()):
            path = ("storage", "efs", name, "regions", index)
            yield Finding(path, f"{site} is named already", "take one out")


@check(
    "STO004",
    Level.ERROR,
    "An NFS export is not at a physical site of the spec.",
    waivable=False,
)
def nfs_site(facts: Facts) -> Iterator[Finding]:
    for name, nfs in facts.spec.storage.nfs.items():
        if nfs.site not in facts.physical_sites:
            message = f"{nfs.site} is not a physical site of this spec"
            yield Finding(
                ("storage", "nfs", name, "site"), message, meant_one_of(nfs.site, facts.physical_sites)
            )


@check("STO005", Level.ERROR, "An NFS export's server does not exist, or there is none.", waivable=False)
def nfs_server(facts: Facts) -> Iterator[Finding]:
    for name, nfs in facts.spec.storage.nfs.items():
        site = facts.physical_sites.get(nfs.site)
        if site is None:
            continue
        able = [node.name for node in facts.servers.get((nfs.site, NodeRole.NFS_SERVER), ())]
        if nfs.node is not None and nfs.node not in site.nodes:
            message = f"{nfs.site} has no node {nfs.node}"
            hint = meant_one_of(nfs.node, able or site.nodes)
            yield Finding(("storage", "nfs", name, "node"), message, hint)
        elif nfs.node is None and not able:
            message = f"no node of {nfs.site} has the role nfs-server"
            yield Finding(("storage", "nfs", name), message, "give one the role, or name one with 'node:'")


@check("STO006", Level.WARNING, "An NFS export's server is not set up as one, or it is unclear which it is.")
def nfs_role(facts: Facts) -> Iterator[Finding]:
    for name, nfs in facts.spec.storage.nfs.items():
        able = [node.name for node in facts.servers.get((nfs.site, NodeRole.NFS_SERVER), ())]
        site = facts.physical_sites.get(nfs.site)
        if site is not None and nfs.node in site.nodes and nfs.node not in able:
            message = f"{nfs.node} has not the role nfs-server"
            yield Finding(("storage", "nfs", name, "node"), message, "add it to the node's roles")
        elif nfs.node is None and len(able) > 1:
            message = f"{listed(able)} all have the role nfs-server; {able[0]} is taken"
            yield Finding(("storage", "nfs", name), message, "say which with 'node:'")


def _mounts(facts: Facts) -> Iterator[tuple[Path, str, frozenset[str]]]:
    """Each mounted path with the sites that mount it."""
    storage, everywhere = facts.spec.storage, frozenset(facts.spec.sites)
    for name, efs in storage.efs.items():
        yield ("storage", "efs", name, "path"), efs.path, frozenset(efs.regions or facts.places)
    for name, bucket in storage.s3.items():
        if bucket.path is not None:
            yield ("storage", "s3", name, "path"), bucket.path, everywhere
    for name, nfs in storage.nfs.items():
        yield ("storage", "nfs", name, "path"), nfs.path, frozenset({nfs.site})


@check("STO007", Level.ERROR, "Two kinds of storage are mounted at one path in one place.")
def path_twice(facts: Facts) -> Iterator[Finding]:
    seen: defaultdict[tuple[str, str], list[Path]] = defaultdict(list)
    for path, mounted, sites in _mounts(facts):
        clashes = sorted(site for site in sites if (mounted, site) in seen)
        if clashes:
            first = dotted(seen[mounted, clashes[0]][0][:-1])
            message = f"{first} is mounted at {mounted} in {listed(clashes)} too"
            yield Finding(path, message, "give each a path of its own")
        for site in sites:
            seen[mounted, site].append(path)


@check("STO008", Level.ERROR, "A mount is where the system keeps its own files.")
def system_path(facts: Facts) -> Iterator[Finding]:
    for path, mounted, _ in _mounts(facts):
        if mounted in _SYSTEM or mounted.startswith(_SYSTEM_BELOW):
            yield Finding(path, f"{mounted} is the system's own", "take a path such as /data")


@check("STO009", Level.WARNING, "A mount lies within another one.")
def nested(facts: Facts) -> Iterator[Finding]:
    mounts = {mounted: (path, sites) for path, mounted, sites in _mounts(facts) if mounted not in _SYSTEM}
    for path, mounted, sites in _mounts(facts):
        steps = mounted.split("/")
        for length in range(2, len(steps)):
            outer = mounts.get("/".join(steps[:length]))
            if outer is not None and outer[1] & sites:
                message = f"{mounted} lies within {dotted(outer[0][:-1])}, which must be mounted first"
                yield Finding(path, message, "mount them side by side")
                break


@check("STO010", Level.ERROR, "A bucket's name is not valid in S3.")
def bucket_name(facts: Facts) -> Iterator[Finding]:
    stated: list[tuple[Path, str]] = [
        (("storage", "s3", name, "name"), bucket.name)
        for name, bucket in facts.spec.storage.s3.items()
        if bucket.name is not None
    ]
    if facts.spec.state.bucket is not None:
        stated.append((("state", "bucket"), facts.spec.state.bucket))
    for path, name in stated:
        why = limits.refused_bucket_name(name)
        if why:
            yield Finding(path, f"S3 does not take {name!r}: {why}", "take another, as in lab-datasets")


@check("STO011", Level.WARNING, "A bucket's name has dots, which its certificate does not cover.")
def bucket_dots(facts: Facts) -> Iterator[Finding]:
    for name, bucket in facts.spec.storage.s3.items():
        if bucket.name is not None and "." in bucket.name and not limits.refused_bucket_name(bucket.name):
            message = "AWS's certificate does not cover a bucket with dots in its name"
            yield Finding(("storage", "s3", name, "name"), message, "take hyphens")


@check("STO012", Level.ERROR, "Two buckets have the same name.")
def bucket_twice(facts: Facts) -> Iterator[Finding]:
    seen: dict[str, Path] = {}
    state = facts.spec.state
    if state.kind == "s3" and state.bucket is not None:
        seen[state.bucket] = ("state", "bucket")
    for name, bucket in facts.spec.storage.s3.items():
        if bucket.name is not None:
            path: Path = ("storage", "s3", name, "name")
            first = seen.setdefault(bucket.name, path)
            if first is not path:
                message = f"{bucket.name} is {dotted(first)} already"
                yield Finding(path, message, "leave it out to have one made")


@check("STO013", Level.ERROR, "A bucket's objects are deleted before they would move to infrequent access.")
def lifecycle(facts: Facts) -> Iterator[Finding]:
    for name, bucket in facts.spec.storage.s3.items():
        archive, expire = bucket.archive_days, bucket.expire_days
        if archive is not None and expire is not None and expire <= archive:
            message = f"objects are deleted after {expire} days, and would move after {archive}"
            yield Finding(("storage", "s3", name, "archive_days"), message, "make it fewer, or leave it out")


@check("STO014", Level.ERROR, "EFS can't combine a performance mode with a throughput mode.")
def efs_modes(facts: Facts) -> Iterator[Finding]:
    # EFS User Guide, "Amazon EFS performance specifications": elastic throughput requires general purpose
    # mode.
    for name, efs in facts.spec.storage.efs.items():
        if efs.performance == "maxIO" and efs.throughput == "elastic":
            message = "EFS has no elastic throughput with maxIO"
            path = ("storage", "efs", name, "performance")
            yield Finding(path, message, "leave performance out, or add 'throughput: bursting'")


@check("STO015", Level.ERROR, "Two access points create one directory with different owners.")
def access_points(facts: Facts) -> Iterator[Finding]:
    for name, efs in facts.spec.storage.efs.items():
        seen: dict[str, str] = {}
        for point, at in efs.access_points.items():
            first = seen.setdefault(at.path, point)
            other = efs.access_points[first]
            if (at.uid, at.gid, at.mode) != (other.uid, other.gid, other.mode):
                path = ("storage", "efs", name, "access_points", point, "path")
                message = f"{first} makes {at.path} too, with another owner or mode"
                yield Finding(path, message, "whichever mounts first decides: make them agree")


@check("STO016", Level.ERROR, "An NFS export of a directory of the system.")
def nfs_export(facts: Facts) -> Iterator[Finding]:
    for name, nfs in facts.spec.storage.nfs.items():
        if nfs.export in _SYSTEM or nfs.export.startswith(_SYSTEM_BELOW):
            path = ("storage", "nfs", name, "export")
            yield Finding(path, f"{nfs.export} is the system's own", "take a path such as /srv/home")


@check("STO017", Level.ERROR, "State in S3 without a bucket.", waivable=False)
def state_bucket(facts: Facts) -> Iterator[Finding]:
    state = facts.spec.state
    if state.kind == "s3" and not state.bucket:
        message = "the state is in S3, and no bucket is named"
        yield Finding(("state", "kind"), message, "add 'bucket:'; invoke bootstrap makes it")


@check("STO018", Level.WARNING, "Local state with settings of S3, which have no effect.")
def state_unused(facts: Facts) -> Iterator[Finding]:
    state = facts.spec.state
    for field in ("bucket", "region", "key"):
        if state.kind == "local" and getattr(state, field) is not None:
            yield Finding(("state", field), "the state is local: this has no effect", "add 'kind: s3'")


@check("STO019", Level.ERROR, "The region of the state's bucket does not exist.")
def state_region(facts: Facts) -> Iterator[Finding]:
    region = facts.spec.state.region
    if facts.spec.state.kind == "s3" and region is not None and regions.find(region) is None:
        message = f"{region} is not an AWS region"
        yield Finding(("state", "region"), message, meant(regions.suggest_region(region)))


@check("STO020", Level.ERROR, "An embedded AWS keeps nothing: neither state, nor secrets, nor an account.")
def embedded(facts: Facts) -> Iterator[Finding]:
    spec = facts.spec
    if not spec.aws.embedded:
        return
    if spec.state.kind == "s3":
        message = "the state would be lost with the embedded AWS"
        yield Finding(("state", "kind"), message, "leave it out: state is local then")
    if spec.secrets.store == "ssm":
        message = "the secrets would be lost with the embedded AWS"
        yield Finding(("secrets", "store"), message, "leave it out: they are in an encrypted file then")
    for field in ("account", "profile"):
        if getattr(spec.aws, field) is not None:
            message = "the embedded AWS knows one account, and no profiles"
            yield Finding(("aws", field), message, "leave it out")


@check("STO021", Level.ERROR, "The number of an AWS account is invalid.")
def account(facts: Facts) -> Iterator[Finding]:
    number = facts.spec.aws.account
    if number is not None and not facts.spec.aws.embedded and not re.fullmatch(r"\d{12}", number):
        message = f"{number!r} is not an AWS account"
        yield Finding(("aws", "account"), message, "twelve digits; aws sts get-caller-identity tells them")


@check("STO022", Level.ERROR, "The path of secrets is not valid in Parameter Store.")
def secrets_prefix(facts: Facts) -> Iterator[Finding]:
    # Systems Manager User Guide, "Requirements and constraints for parameter names"
    prefix = facts.spec.secrets.prefix
    if prefix is None or facts.spec.secrets.store != "ssm":
        return
    path = ("secrets", "prefix")
    if not re.fullmatch(r"(/[A-Za-z0-9_.-]+)+", prefix):
        yield Finding(path, f"{prefix!r} is not a path", "as in /causeway/research")
    elif re.match(r"/(aws|ssm)", prefix, re.IGNORECASE):
        message = f"{prefix!r}: AWS keeps paths that begin with /aws or /ssm for itself"
        yield Finding(path, message, "as in /causeway/research")


@check("STO023", Level.ERROR, "A copy of a path where no file system is.", waivable=False)
def copied_path(facts: Facts) -> Iterator[Finding]:
    storage = facts.spec.storage
    paths = sorted({e.path for e in storage.efs.values()} | {n.path for n in storage.nfs.values()})
    for name, copy in storage.copies.items():
        if copy.path not in paths:
            message = f"no NFS export and no EFS file system has the path {copy.path}"
            yield Finding(("storage", "copies", name, "path"), message, meant_one_of(copy.path, paths))


@check("STO024", Level.ERROR, "A copy goes to a bucket that does not exist.", waivable=False)
def copied_to(facts: Facts) -> Iterator[Finding]:
    storage = facts.spec.storage
    for name, copy in storage.copies.items():
        if copy.bucket not in storage.s3:
            path = ("storage", "copies", name, "bucket")
            yield Finding(path, f"bucket {copy.bucket} not found", meant_one_of(copy.bucket, storage.s3))


@check("STO025", Level.ERROR, "A copy goes to a bucket that machines may only read.")
def copied_to_read_only(facts: Facts) -> Iterator[Finding]:
    storage = facts.spec.storage
    for name, copy in storage.copies.items():
        bucket = storage.s3.get(copy.bucket)
        if bucket is not None and bucket.read_only:
            path = ("storage", "copies", name, "bucket")
            message = f"machines may only read {copy.bucket}"
            yield Finding(path, message, "take a bucket of its own for copies")
