"""Which checkpoints of a run are complete, which are kept, and which one a start resumes from. Only
decisions, no I/O.

A worker's checkpoint is copied to the run's folder as a *part*: its files, and then a manifest with their
sizes and digests. What has no manifest does not exist. A *checkpoint* is the parts of all workers that have
to write one: the first worker, or all of them (``sharded``).

Starts of a run are numbered (``start``): each resumes with one more than the highest number of the manifests
that it finds. So what a later start wrote is newer whatever clocks say, and parts of different starts are
never joined.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import PurePosixPath

SETTLED = 30
"""Seconds without a write after which a checkpoint that was not renamed into place counts as complete."""
_STEP = re.compile(r"step[=_-]?(\d+)|(\d+)(?!.*\d)")


@dataclass(frozen=True)
class Policy:
    """What the job file defines about checkpoints."""

    workers: tuple[str, ...]
    """The workers that write the parts of a checkpoint: ``worker-0``, …; empty if nothing is copied."""
    keep: int = 2
    metric: str | None = None
    maximize: bool = False
    every: int | None = None
    """Seconds from one copy to the next. None: each checkpoint is copied as soon as it is complete."""

    def text(self) -> str:
        values = asdict(self)
        if self.every is None:  # older programs do not know it
            del values["every"]
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> Policy:
        values = json.loads(text)
        # A newer program may say more than this one knows.
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        return cls(**{**known, "workers": tuple(values["workers"])})


@dataclass(frozen=True)
class File:
    """A file of a part."""

    path: str
    """Relative to the folder of checkpoints: ``step-1200/model.pt``, ``step-1200.pt``."""
    size: int
    sha256: str
    modified: int
    """Nanoseconds since the epoch."""


@dataclass(frozen=True)
class Part:
    """A manifest: what one worker wrote of a checkpoint, as it is in the store."""

    worker: str
    name: str
    """Name of the file or folder: ``step-1200``."""
    start: int
    files: tuple[File, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics reported for its step."""
    sequence: int = 0
    """Position among the checkpoints that its worker wrote in this start, counted from 1, since clocks jump.
    0 if an older program wrote it."""
    site: str = ""
    """The site where its worker ran; empty if unknown."""
    seconds: float = 0.0
    """How long copying took, as measured by its copier. It is not in the manifest, and 0 in manifests that
    are read: older programs reject a manifest with an unknown field."""

    @property
    def step(self) -> int:
        """The step in its name."""
        return step_of(self.name) or 0

    @property
    def size(self) -> int:
        """Total size of its files in bytes."""
        return sum(each.size for each in self.files)

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key: later parts of the same worker sort higher."""
        return self.start, self.sequence, self.written

    @property
    def written(self) -> int:
        """When the last of its files was written, in nanoseconds since the epoch."""
        return max(each.modified for each in self.files)

    @property
    def id(self) -> str:
        """The worker's id for it in the store: ids sort in the order in which the parts were written."""
        return f"{self.start:06d}-{self.sequence or self.written:020d}-{self.name}"

    def text(self) -> str:
        values = asdict(self)
        del values["seconds"]
        return json.dumps(values, ensure_ascii=False)

    @classmethod
    def of(cls, text: str) -> Part:
        """Parse a manifest. Raises ValueError, KeyError or TypeError if ``text`` is not one."""
        values = json.loads(text)
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        return cls(**{**known, "files": tuple(File(**each) for each in values["files"])})


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        return self.parts[0].name

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key: later checkpoints sort higher."""
        return max(part.order for part in self.parts)

    @property
    def written(self) -> int:
        """When the last of its files was written, in nanoseconds since the epoch."""
        return max(part.written for part in self.parts)

    def value(self, metric: str) -> float | None:
        """The reported value of a metric; None if nothing or NaN was reported."""
        values = [part.metrics[metric] for part in self.parts if metric in part.metrics]
        return values[0] if values and values[0] == values[0] else None


@dataclass(frozen=True)
class Entry:
    """A file or folder that the program wrote, as found on disk."""

    name: str
    files: Mapping[str, tuple[int, int]]
    """Path, as in ``File.path`` → size and modification time in nanoseconds."""
    changed: int
    """When its inode last changed, for example by a rename, in nanoseconds since the epoch."""
    modified: int
    """When the most recently changed of its files and folders was modified."""

    @property
    def written(self) -> int:
        return max(modified for _, modified in self.files.values())

    @property
    def renamed(self) -> bool:
        """Whether it was renamed into place and not written to since.

        A rename changes an inode's ctime but not its mtime. Creating an entry in a folder, or writing to a
        file, sets both times of that inode (inode(7)).
        """
        return self.changed > self.modified


def step_of(name: str) -> int | None:
    """Return the step of a checkpoint's name: ``step-1200``, ``checkpoint-1200``, ``epoch=3-step=1200.ckpt``.
    None if there is no number in it: then it is not a checkpoint."""
    path = PurePosixPath(name)
    match = _STEP.search(name if path.suffix[1:].isdigit() else path.stem)
    return int(match[1] or match[2]) if match else None


def is_checkpoint(name: str) -> bool:
    """Whether an entry of this name in the folder of checkpoints is a checkpoint, or becomes one."""
    return not name.startswith(".") and is_text(name) and step_of(name) is not None


def is_text(name: str) -> bool:
    """Whether a name can be encoded: names on a disk are bytes, those in a manifest and in a store are
    UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_whole(entry: Entry, alive: int | None) -> bool:
    """Whether the program has written all of an entry.

    ``alive``: until when the program may have been writing, in nanoseconds since the epoch; None if unknown.
    An entry that was renamed into place is complete; any other is complete when it has not been written to
    for a while.
    """
    if entry.name.endswith(".tmp") or not is_checkpoint(entry.name) or not entry.files:
        return False
    if not all(map(is_text, entry.files)):
        return False
    return entry.renamed or (alive is not None and alive - entry.modified >= SETTLED * 10**9)


def next_to_send(new: Iterable[Entry], *, in_order: bool) -> Entry | None:
    """Choose the entry to send next, from complete ones that are not in the store: the newest, so that some
    are skipped if the program is faster than the connection to the store.

    ``in_order``: choose the oldest instead, as all workers have to send the same ones.
    """
    ordered = sorted(new, key=lambda each: (each.written, each.name))
    return next(iter(ordered if in_order else reversed(ordered)), None)


def passed_over(entry: Entry, sent: Part) -> bool:
    """Whether an earlier process of this program skipped an entry in favour of ``sent``: it is older, and of
    an earlier step. An older entry of a later step comes from a clock that was set back."""
    return entry.written <= sent.written and (step_of(entry.name) or 0) <= sent.step


def whole(parts: Iterable[Part], workers: Sequence[str]) -> list[Checkpoint]:
    """Return the checkpoints of which every worker wrote its part, the newest first.

    With several workers, each has to write its part once, and with files of its own: a second part of a
    worker, or a checkpoint that others spell differently, could belong to another step.
    """
    groups: dict[object, list[Part]] = {}
    for part in parts:
        if part.worker in workers and part.files:
            # With one worker, a name may be written again.
            groups.setdefault((part.start, part.name, part.id if len(workers) == 1 else ""), []).append(part)
    found = [
        Checkpoint(tuple(sorted(group, key=lambda part: workers.index(part.worker))))
        for group in groups.values()
        if sorted(part.worker for part in group) == sorted(workers) and not _collide(group)
    ]
    return sorted(found, key=lambda each: (each.order, each.name), reverse=True)


def _collide(parts: Iterable[Part]) -> bool:
    digests: dict[str, str] = {}
    return any(
        digests.setdefault(file.path, file.sha256) != file.sha256 for part in parts for file in part.files
    )


def kept(checkpoints: Sequence[Checkpoint], policy: Policy) -> list[Checkpoint]:
    """Return the checkpoints to keep: the newest ones, and the best by the metric (of equals, the newer).
    ``checkpoints`` must be sorted, the newest first."""
    last = list(checkpoints[: policy.keep])
    if policy.metric is None:
        return last
    sign = -1 if policy.maximize else 1
    values = [
        (sign * value, each) for each in checkpoints if (value := each.value(policy.metric)) is not None
    ]
    best = [min(values, key=lambda pair: pair[0])[1]] if values else []
    return last + [each for each in best if each not in last]


def obsolete(parts: Sequence[Part], policy: Policy, worker: str, reading: Iterable[str]) -> list[Part]:
    """Return the parts of a worker that are no longer needed. Each worker removes only its own.

    ``reading``: ids of the parts that this start resumed from, which another worker may still be fetching.
    """
    checkpoints = whole(parts, policy.workers)
    if not checkpoints:
        return []
    needed = {part.id for each in kept(checkpoints, policy) for part in each.parts} | {*reading}
    # The other parts of newer checkpoints may still arrive.
    newest = min(part.id for part in checkpoints[0].parts)
    own = [each for each in parts if each.worker == worker]
    gone = [each for each in own if each.id not in needed and each.id < newest]
    if len(policy.workers) == 1:
        return gone
    # A part that was written twice does not count as complete, and must not when one of the two is removed.
    left = {(each.start, each.name) for each in own if each not in gone}
    return [each for each in gone if (each.start, each.name) not in left]


def measured(part: Part, metrics: Mapping[int, Mapping[str, float]]) -> Part:
    """Return a part with the metrics reported for its step so far. ``metrics``: step → metrics."""
    reported = metrics.get(step_of(part.name) or 0, {})
    numbers = {name: value for name, value in reported.items() if value == value}  # not NaN
    return replace(part, metrics={**part.metrics, **numbers})


def next_start(parts: Iterable[Part]) -> int:
    return 1 + max((part.start for part in parts), default=0)
