"""The lock file: decisions that must not change between runs. Functions from text to text, without I/O.

One line per block, number, region, zone and image, sorted by owner, so that a review shows what was added,
and branches that add different sites merge without conflicts. If both branches allocated the same block or
number, ``parse`` reports it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network

import yaml

from infra.errors import Path, Position, Problem, SpecError, dotted, newer
from infra.nearest import nearest
from infra.resolve.allocate_numbers import kind_of
from infra.resolve.claims import Claim, Source, above, lineage
from infra.resolve.overlaps import survey

VERSION = 1
"""The version of the lock file's format."""

HEADER = """\
# What must not move in this environment: address blocks, AS numbers, ids of users and groups, AWS regions,
# zones of NAT gateways and machines, machine images.
# Written by us, committed by you, together with the spec. To release what something that is gone for good
# still holds, take out its lines and those that start with its name and a slash; the others keep theirs.
"""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OWNER = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9_][a-z0-9._-]*)*")
_NUMBERED = re.compile(r"[a-z]+(/[a-z0-9_][a-z0-9_-]*)+/(asn|gid|uid)")
_NUMBER = re.compile(r"[1-9]\d{0,9}")
_SITE = re.compile(r"[a-z0-9][a-z0-9._-]*")
_ZONED = re.compile(r"sites(/[a-z0-9_][a-z0-9._-]*)+")
_PLACE = re.compile(r"[a-z]{2,}[0-9]?(-[a-z0-9]+)+")
_PLACES = {"regions": "us-west-2", "zones": "us-west-2a"}
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._-]*")
_AMI = re.compile(r"ami-[0-9a-f]{8,17}")
_CONFLICT = re.compile(r"(<{7}|\|{7}|={7}|>{7})( |$)")


@dataclass(frozen=True, slots=True)
class Lock:
    """The decisions held by a lock file. The first lock of an environment is ``Lock()``."""

    version: int = VERSION
    blocks: Mapping[str, IPv4Network] = field(default_factory=dict)
    """Owner → block."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Owner → number: ``sites/us-west-2/asn``, ``access/users/ada/uid``, ``access/groups/staff/gid``."""
    regions: Mapping[str, str] = field(default_factory=dict)
    """AWS site → AWS region: the region of Terraform's provider for the site. A site that left the spec
    stays here until Terraform's state has no resources of it."""
    zones: Mapping[str, str] = field(default_factory=dict)
    """Owner → availability zone: ``sites/us-west-2/nat``, ``sites/us-west-2/instances/master-1``."""
    images: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Image → AWS region → AMI id."""
    pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The original name of a pool that was renamed → its later names."""


def dump(lock: Lock) -> str:
    """The lock as YAML; the text is the same for equal locks."""
    lines = [f"version: {lock.version}"]
    if lock.blocks:
        lines.append("blocks:")
        lines += [f"  {owner}: {lock.blocks[owner]}" for owner in sorted(lock.blocks, key=lineage)]
    if lock.numbers:
        lines.append("numbers:")
        lines += [f"  {owner}: {lock.numbers[owner]}" for owner in sorted(lock.numbers, key=lineage)]
    if lock.regions:
        lines.append("regions:")
        lines += [f"  {site}: {region}" for site, region in sorted(lock.regions.items())]
    if lock.zones:
        lines.append("zones:")
        lines += [f"  {owner}: {lock.zones[owner]}" for owner in sorted(lock.zones, key=lineage)]
    if any(lock.images.values()):
        lines.append("images:")
        for image, regions in sorted(lock.images.items()):
            if regions:
                lines.append(f"  {image}:")
                lines += [f"    {region}: {ami}" for region, ami in sorted(regions.items())]
    if lock.pools:
        lines.append("pools:")
        lines += [f"  {born}: [{', '.join(names)}]" for born, names in sorted(lock.pools.items())]
    return HEADER + "\n".join(lines) + "\n"


def release(lock: Lock, owner: str) -> Lock:
    """The lock without the blocks, numbers and zones of an owner and of all keys below it."""

    def stays(key: str) -> bool:
        return not f"{key}/".startswith(f"{owner}/")

    return replace(
        lock,
        blocks={key: block for key, block in lock.blocks.items() if stays(key)},
        numbers={key: number for key, number in lock.numbers.items() if stays(key)},
        zones={key: zone for key, zone in lock.zones.items() if stays(key)},
    )


def without_regions(lock: Lock, sites: Iterable[str]) -> Lock:
    """The lock after all resources of these sites are destroyed, without their regions. Their blocks and
    numbers are kept."""
    gone = frozenset(sites)
    return replace(
        lock,
        regions={site: region for site, region in lock.regions.items() if site not in gone},
        zones={owner: zone for owner, zone in lock.zones.items() if owner.split("/")[1] not in gone},
    )


def parse(text: str, file: str) -> Lock:
    """Parse a lock file; ``file`` is the name used in messages. An empty text is an empty lock.

    Raises ``SpecError`` with all problems, each with its line: LOCK001 not a lock file (also: merge conflict
    markers), LOCK002 unknown key, LOCK003 bad value, LOCK004 unknown version, LOCK005 duplicate key, LOCK006
    two owners of one address or number.
    """
    reader = _Reader(file)
    lock = reader.lock(text)
    if reader.problems:
        raise SpecError(sorted(reader.problems, key=lambda problem: problem.position or Position(file, 1)))
    return lock


@dataclass(slots=True)
class _Reader:
    file: str
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, code: str, path: Path, message: str, line: int, hint: str = "") -> None:
        position = Position(self.file, line)
        self.problems.append(Problem(code, dotted(path), message, position=position, hint=hint))

    def lock(self, text: str) -> Lock:
        marks = [number for number, line in enumerate(text.splitlines(), 1) if _CONFLICT.match(line)]
        if marks:
            self.wrong(
                "LOCK001", (), "git left the marks of a merge conflict here", marks[0],
                "take the file as it is on the branch that is live (git checkout --ours or --theirs), and "
                "let 'invoke plan' add what is missing",
            )  # fmt: skip
            return Lock()
        try:
            node = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.wrong("LOCK001", (), error.problem or "not YAML", mark.line + 1 if mark else 1, _RESTORE)
            return Lock()
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            self.wrong("LOCK001", (), f"not YAML: {str(error).splitlines()[0]}", 1, _RESTORE)
            return Lock()
        if node is None:
            return Lock()
        parts = {key: value for key, value, _ in self.entries(node, (), self.known)}
        if "version" in parts:
            self.version(parts["version"])
        elif isinstance(node, yaml.MappingNode):
            self.wrong("LOCK004", (), "says no version", 1, f"add 'version: {VERSION}'")
        return Lock(
            VERSION,
            self.blocks(parts["blocks"]) if "blocks" in parts else {},
            self.numbers(parts["numbers"]) if "numbers" in parts else {},
            self.words("regions", _SITE, "us-west-2", parts),
            self.words("zones", _ZONED, "sites/us-west-2/nat", parts),
            self.images(parts["images"]) if "images" in parts else {},
            self.pools(parts["pools"]) if "pools" in parts else {},
        )

    def entries(
        self, node: yaml.Node, path: Path, sound: Callable[[str], str | None]
    ) -> Iterator[tuple[str, yaml.Node, int]]:
        """Yield key, value and line of each entry of a mapping; ``sound`` returns a hint for an unknown key,
        or None."""
        if isinstance(node, yaml.ScalarNode) and node.value == "":
            return
        if not isinstance(node, yaml.MappingNode):
            message = "a mapping of keys to values is expected here"
            self.wrong("LOCK003" if path else "LOCK001", path, message, _line(node), _RESTORE)
            return
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None:
                self.wrong("LOCK003", path, "a key must be a plain word", _line(key))
            elif name in lines:
                message = f"written twice; first in line {lines[name]}"
                self.wrong("LOCK005", (*path, name), message, _line(key), _ONE)
            elif (hint := sound(name)) is not None:
                self.wrong("LOCK002", (*path, name), "unknown key", _line(key), hint)
            else:
                lines[name] = _line(key)
                yield name, value, _line(key)

    @staticmethod
    def known(name: str) -> str | None:
        names = ("version", "blocks", "numbers", "regions", "zones", "images", "pools")
        if name in names:
            return None
        near = nearest(name, names)
        return f"did you mean {near}?" if near else f"known here: {', '.join(names)}"

    def version(self, node: yaml.Node) -> None:
        if not isinstance(node, yaml.ScalarNode) or node.value != str(VERSION):
            message, hint = f"{_shown(node)} is not a version; {VERSION} is", _RESTORE
            if isinstance(node, yaml.ScalarNode) and node.value.isdigit() and int(node.value) > VERSION:
                message, hint = newer(int(node.value), VERSION), ""
            self.wrong("LOCK004", ("version",), message, _line(node), hint)

    def blocks(self, node: yaml.Node) -> dict[str, IPv4Network]:
        blocks: dict[str, IPv4Network] = {}
        lines: dict[str, int] = {}
        for owner, value, line in self.entries(node, ("blocks",), _like(_OWNER, "sites/us-west-2")):
            block: IPv4Network | None
            try:
                block = IPv4Network(value.value if isinstance(value, yaml.ScalarNode) else "")
            except ValueError:
                block = None
            if block is not None and value.value == str(block):
                blocks[owner] = block
                lines[owner] = line
            else:
                message = f"{_shown(value)} is not an IPv4 block such as 10.8.0.0/20"
                self.wrong("LOCK003", ("blocks", owner), message, line, _RESTORE)
        claims = (Claim(owner, block, Source.LOCK) for owner, block in blocks.items())
        for overlap in survey(claims, lambda claim: tuple(above(claim.owner))).overlaps:
            first, second = sorted((overlap.a, overlap.b), key=lambda claim: lines[claim.owner])
            message = f"{second} overlaps {first} in line {lines[first.owner]}"
            self.wrong("LOCK006", ("blocks", second.owner), message, lines[second.owner], _TWICE)
        return blocks

    def numbers(self, node: yaml.Node) -> dict[str, int]:
        numbers: dict[str, int] = {}
        first: dict[tuple[str, int], tuple[str, int]] = {}
        for owner, value, line in self.entries(node, ("numbers",), _like(_NUMBERED, "sites/us-west-2/asn")):
            if not isinstance(value, yaml.ScalarNode) or not _NUMBER.fullmatch(value.value):
                message = f"{_shown(value)} is not a number such as 64512"
                self.wrong("LOCK003", ("numbers", owner), message, line, _RESTORE)
                continue
            numbers[owner] = number = int(value.value)
            other, at = first.setdefault((kind_of(owner), number), (owner, line))
            if other != owner:
                message = f"{owner} and {other} in line {at} are both {number}"
                self.wrong("LOCK006", ("numbers", owner), message, line, _TWICE)
        return numbers

    def words(
        self, section: str, owner: re.Pattern[str], example: str, parts: Mapping[str, yaml.Node]
    ) -> dict[str, str]:
        """Owner → an AWS region or zone."""
        words: dict[str, str] = {}
        if section not in parts:
            return words
        for name, value, line in self.entries(parts[section], (section,), _like(owner, example)):
            if isinstance(value, yaml.ScalarNode) and _PLACE.fullmatch(value.value):
                words[name] = value.value
            else:
                message = (
                    f"{_shown(value)} is not an AWS {section.removesuffix('s')} such as {_PLACES[section]}"
                )
                self.wrong("LOCK003", (section, name), message, line, _RESTORE)
        return words

    def images(self, node: yaml.Node) -> dict[str, dict[str, str]]:
        images: dict[str, dict[str, str]] = {}
        for image, regions, _ in self.entries(node, ("images",), _like(_IMAGE, "gpu")):
            path = ("images", image)
            images[image] = {}
            for region, value, line in self.entries(regions, path, _like(_IMAGE, "us-west-2")):
                if isinstance(value, yaml.ScalarNode) and _AMI.fullmatch(value.value):
                    images[image][region] = value.value
                else:
                    message = f"{_shown(value)} is not an AMI id such as ami-0abc1234def567890"
                    self.wrong("LOCK003", (*path, region), message, line, _RESTORE)
        return images

    def pools(self, node: yaml.Node) -> dict[str, tuple[str, ...]]:
        pools: dict[str, tuple[str, ...]] = {}
        for born, value, line in self.entries(node, ("pools",), _like(_IMAGE, "gpu-p3")):
            items = value.value if isinstance(value, yaml.SequenceNode) else []
            names = tuple(each.value for each in items if isinstance(each, yaml.ScalarNode))
            if names and len(names) == len(items) and all(map(_IMAGE.fullmatch, names)):
                pools[born] = names
            else:
                message = "a list of names is expected here, such as [gpu]"
                self.wrong("LOCK003", ("pools", born), message, line, _RESTORE)
        return pools


_RESTORE = "this file is written by us: take it back from git"
_ONE = "keep the line that is live, and take out the other"
_TWICE = (
    "two branches each took it, it seems: take out the line of what is not live yet, and 'invoke plan' "
    "finds another for it"
)


def _like(pattern: re.Pattern[str], example: str) -> Callable[[str], str | None]:
    def sound(name: str) -> str | None:
        return None if pattern.fullmatch(name) else f"a key here looks like {example}"

    return sound


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _shown(node: yaml.Node) -> str:
    return repr(node.value) if isinstance(node, yaml.ScalarNode) else "this value"
