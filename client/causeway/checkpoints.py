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
"""Seconds after which a checkpoint that was not renamed into place is whole, if nothing was written to it."""
_STEP = re.compile(r"step[=_-]?(\d+)|(\d+)(?!.*\d)")


@dataclass(frozen=True)
class Policy:
    """What the job file says."""

    workers: tuple[str, ...]
    """Those that write the parts of a checkpoint: ``worker-0``, …; none where nothing is to be copied."""
    keep: int = 2
    metric: str | None = None
    maximize: bool = False
    every: int | None = None
    """Seconds from one copy to the next; None for all as soon as they are whole."""

    def text(self) -> str:
        values = asdict(self)
        if self.every is None:  # older programs do not know it
            del values["every"]
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> Policy:
        values = json.loads(text)
        return cls(**{**values, "workers": tuple(values["workers"])})


@dataclass(frozen=True)
class File:
    """A file of a part."""

    path: str
    """Below the folder of checkpoints: ``step-1200/model.pt``, ``step-1200.pt``."""
    size: int
    sha256: str
    modified: int
    """Nanoseconds since the epoch."""


@dataclass(frozen=True)
class Part:
    """A manifest: what one worker wrote of a checkpoint, as it is in the store."""

    worker: str
    name: str
    """Of the file or folder: ``step-1200``."""
    start: int
    files: tuple[File, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What was reported for its step."""
    sequence: int = 0
    """Its place among those that its worker wrote in this start, from 1; clocks jump. 0 of older programs."""
    site: str = ""
    """Where its worker ran; empty where that is not known."""
    seconds: float = 0.0
    """What copying it took, as its copier knows. It is not in the manifest, and 0 in what is read: older
    programs read no manifest with a field that they do not know."""

    @property
    def step(self) -> int:
        """The step that its name says."""
        return step_of(self.name) or 0

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(each.size for each in self.files)

    @property
    def order(self) -> tuple[int, int, int]:
        """Later ones of its worker have a higher one."""
        return self.start, self.sequence, self.written

    @property
    def written(self) -> int:
        """When the last of its files was, in nanoseconds since the epoch."""
        return max(each.modified for each in self.files)

    @property
    def id(self) -> str:
        """What its worker calls it in the store: names sort as the parts were written."""
        return f"{self.start:06d}-{self.sequence or self.written:020d}-{self.name}"

    def text(self) -> str:
        values = asdict(self)
        del values["seconds"]
        return json.dumps(values, ensure_ascii=False)

    @classmethod
    def of(cls, text: str) -> Part:
        """ValueError, KeyError or TypeError for something else."""
        values = json.loads(text)
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        return cls(**{**known, "files": tuple(File(**each) for each in values["files"])})


@dataclass(frozen=True)
class Checkpoint:
    """A whole one."""

    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        return self.parts[0].name

    @property
    def order(self) -> tuple[int, int, int]:
        """Later ones have a higher one."""
        return max(part.order for part in self.parts)

    @property
    def written(self) -> int:
        """When the last of its files was, in nanoseconds since the epoch."""
        return max(part.written for part in self.parts)

    def value(self, metric: str) -> float | None:
        """What was reported; None if nothing was, or NaN."""
        values = [part.metrics[metric] for part in self.parts if metric in part.metrics]
        return values[0] if values and values[0] == values[0] else None


@dataclass(frozen=True)
class Entry:
    """A file or folder that the program wrote, as the disk has it."""

    name: str
    files: Mapping[str, tuple[int, int]]
    """Path, as in File → size and time of modification in nanoseconds."""
    changed: int
    """When its inode changed last, as by a rename; in nanoseconds since the epoch."""
    modified: int
    """When the last of its files and folders was modified."""

    @property
    def written(self) -> int:
        return max(modified for _, modified in self.files.values())

    @property
    def renamed(self) -> bool:
        """Whether it was renamed into place, and not written to since.

        A rename changes an inode's ctime and no mtime; each entry that is made in a folder, and each write to
        a file, sets both of that inode (inode(7)).
        """
        return self.changed > self.modified


def step_of(name: str) -> int | None:
    """The step of a checkpoint: ``step-1200``, ``checkpoint-1200``, ``epoch=3-step=1200.ckpt``. None without
    a number: that is not a checkpoint."""
    path = PurePosixPath(name)
    match = _STEP.search(name if path.suffix[1:].isdigit() else path.stem)
    return int(match[1] or match[2]) if match else None


def is_checkpoint(name: str) -> bool:
    """Whether something of this name in the folder of checkpoints is one, or becomes one."""
    return not name.startswith(".") and is_text(name) and step_of(name) is not None


def is_text(name: str) -> bool:
    """Whether a name can be written down: on a disk it is bytes, in a manifest and in a store it is UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_whole(entry: Entry, alive: int | None) -> bool:
    """Whether what a program wrote is whole.

    ``alive``: until when the program may have been writing, in nanoseconds since the epoch; None if that is
    not known. What was renamed into place is whole; else it is when nothing was written to it for a while.
    """
    if entry.name.endswith(".tmp") or not is_checkpoint(entry.name) or not entry.files:
        return False
    if not all(map(is_text, entry.files)):
        return False
    return entry.renamed or (alive is not None and alive - entry.modified >= SETTLED * 10**9)


def next_to_send(new: Iterable[Entry], *, in_order: bool) -> Entry | None:
    """The newest of the entries, all of them whole and not in the store: where a program is faster than the
    way to the store, some are passed over.

    ``in_order``: the oldest instead, as all workers have to send the same ones.
    """
    ordered = sorted(new, key=lambda each: (each.written, each.name))
    return next(iter(ordered if in_order else reversed(ordered)), None)


def passed_over(entry: Entry, sent: Part) -> bool:
    """Whether an entry was passed over for what was sent later, when this program was another process: it is
    older, and of an earlier step. Of a later step, and older, it is of a clock that was put back."""
    return entry.written <= sent.written and (step_of(entry.name) or 0) <= sent.step


def whole(parts: Iterable[Part], workers: Sequence[str]) -> list[Checkpoint]:
    """The checkpoints of which every worker wrote its part, the newest first.

    Of several workers each has to write it once, and files of its own: a second one, or one that another
    wrote in other words, could be of another step.
    """
    groups: dict[object, list[Part]] = {}
    for part in parts:
        if part.worker in workers and part.files:
            # One worker alone may write to the same name again.
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
    """The last, and the best by the metric; of equals the newer one. ``checkpoints``: the newest first."""
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
    """The parts of a worker that are not needed any more. Each worker removes only its own.

    ``reading``: ids of what this start resumed from, which another worker may still be fetching.
    """
    checkpoints = whole(parts, policy.workers)
    if not checkpoints:
        return []
    needed = {part.id for each in kept(checkpoints, policy) for part in each.parts} | {*reading}
    # What is newer may still get its other parts.
    newest = min(part.id for part in checkpoints[0].parts)
    own = [each for each in parts if each.worker == worker]
    gone = [each for each in own if each.id not in needed and each.id < newest]
    if len(policy.workers) == 1:
        return gone
    # What was written twice is not whole, and must not become so when one of the two is gone.
    left = {(each.start, each.name) for each in own if each not in gone}
    return [each for each in gone if (each.start, each.name) not in left]


def measured(part: Part, metrics: Mapping[int, Mapping[str, float]]) -> Part:
    """A part with what was reported for its step by now. ``metrics``: step → metrics."""
    reported = metrics.get(step_of(part.name) or 0, {})
    numbers = {name: value for name, value in reported.items() if value == value}  # no NaN
    return replace(part, metrics={**part.metrics, **numbers})


def next_start(parts: Iterable[Part]) -> int:
    return 1 + max((part.start for part in parts), default=0)
