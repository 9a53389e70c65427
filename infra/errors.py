"""All errors that a user may see.

The tree of exceptions (every one is turned into an exit code by ``infra.tasks``; none reaches the user as
a traceback)::

    CausewayError                  exit code 1
    ├── UsageError                 what was asked for does not exist, or was not agreed to
    ├── SpecError                  the spec has problems; carries every one of them
    ├── RenderError                a template and the model do not fit: a fault of ours
    └── DriveError                 the world refused
        ├── ToolError              a program we run failed: command, exit code, last lines
        │   ├── KubectlError, HelmError  in their words (infra.drive.kubernetes)
        │   ├── TerraformError     Terraform's own diagnostics (infra.drive.terraform)
        │   └── StoppedError       Terraform was stopped by Ctrl-C; exit code 130 (infra.drive.terraform)
        ├── StalePlanError         the saved plan is not one of this spec or of this state
        ├── ProtectedError         the plan would destroy something stateful that was not named
        ├── AwsError               AWS refused, or could not be asked (infra.drive.aws)
        ├── RegionsError           not all regions did what they should (infra.drive.aws)
        ├── SecretsError           a secret can't be read or kept (infra.drive.secrets)
        ├── ApiError               the Kubernetes API refused (infra.drive.kubernetes.api)
        ├── AwayError              the Kubernetes API does not answer (infra.drive.kubernetes.api)
        ├── PkiError               certificates can't be issued or read (infra.drive.pki)
        ├── UnreachedError         a machine does not answer over SSH (infra.drive.ssh)
        ├── RemoteError            a command on a machine failed (infra.drive.ssh)
        ├── RegistryError          a registry does not say what an image is (infra.drive.registries)
        └── LocalAwsError          the embedded AWS did not start, or was lost
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Level(StrEnum):
    """How bad a problem is. Only an ``ERROR`` stops a command."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a value was written. Lines and columns count from 1, as editors do."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


Path: TypeAlias = tuple[str | int, ...]
"""The path of a value in a spec: keys of mappings and indices of lists."""


def dotted(path: Path) -> str:
    """A path as people write it: ``pools.gpu.instance_types[0]``, ``dns.records["a.b"]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _BARE.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


_PART = re.compile(r"\.?([A-Za-z0-9_-]+)|\[(\d+)\]|\[\"([^\"]*)\"\]")


def undotted(text: str) -> Path:
    """The path that ``dotted`` wrote."""
    return tuple(int(found[2]) if found[2] else found[1] or found[3] for found in _PART.finditer(text))


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a spec.

    ``path`` is the dotted path in the spec (``pools.gpu.instance_types[0]``), empty for the whole file.
    ``code`` is stable (``NET012``; ``SPEC0xx`` for structure): waivers and searches use it.
    ``hint`` is what would fix it ("did you mean p3.2xlarge?").
    ``waived`` is the reason a person gave for living with it; a waived problem stays visible.
    """

    code: str
    path: str
    message: str
    level: Level = Level.ERROR
    position: Position | None = None
    hint: str = ""
    waived: str = ""

    @property
    def fatal(self) -> bool:
        return self.level is Level.ERROR and not self.waived

    def __str__(self) -> str:
        """``file:line: path: message; hint [CODE]``, on one line, as compilers write it."""
        where = [str(self.position)] if self.position else []
        if self.path:
            where.append(self.path)
        text = ": ".join([*where, self.message])
        if self.hint:
            text += f"; {self.hint}"
        return f"{text} [{self.code}]"


class CausewayError(Exception):
    """The base of all our errors. Its text is complete: what, where, and what to do."""

    exit_code = 1


class UsageError(CausewayError):
    """What was asked for does not exist, or was not agreed to."""


class SpecError(CausewayError):
    """A spec that can't be used, with all that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Sequence[Problem] = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class RenderError(CausewayError):
    """A template asked for something the model does not have."""


class DriveError(CausewayError):
    """The world refused: a tool, a cloud, a disk."""


class ToolError(DriveError):
    """A program that we ran ended with an error."""

    def __init__(self, command: Sequence[str], exit_code: int, output: str) -> None:
        self.command = tuple(command)
        self.status = exit_code
        self.output = output
        tail = "\n".join(output.rstrip().splitlines()[-10:])
        super().__init__(f"{' '.join(command)}: exit code {exit_code}\n{tail}".rstrip())


class StalePlanError(DriveError):
    """The saved plan was made from another spec, or the state has moved on since."""


class ProtectedError(DriveError):
    """The plan would destroy something stateful that was not named."""


class LocalAwsError(DriveError):
    """The embedded AWS could not be started, or went away."""
