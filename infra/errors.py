"""All errors that a user may see.

The tree of exceptions (every one is turned into an exit code by ``infra.tasks``; none reaches the user as
a traceback)::

    CausewayError                  exit code 1
    ├── UsageError                 something requested does not exist, or the user did not confirm
    ├── SpecError                  the spec has problems; carries every one of them
    ├── RenderError                a template and the model do not match: a bug
    └── DriveError                 an error outside of Causeway
        ├── ToolError              a program we run failed: command, exit code, last lines
        │   ├── KubectlError, HelmError  with their messages (infra.drive.kubernetes)
        │   ├── TerraformError     Terraform's own diagnostics (infra.drive.terraform)
        │   └── StoppedError       Terraform was stopped by Ctrl-C; exit code 130 (infra.drive.terraform)
        ├── StalePlanError         the saved plan is not one of this spec or of this state
        ├── ProtectedError         the plan would destroy something stateful that was not named
        ├── AwsError               an AWS call was refused, or failed (infra.drive.aws)
        ├── RegionsError           a call failed in some regions (infra.drive.aws)
        ├── SecretsError           a secret cannot be read or stored (infra.drive.secrets)
        ├── ApiError               the Kubernetes API refused (infra.drive.kubernetes.api)
        ├── AwayError              the Kubernetes API does not answer (infra.drive.kubernetes.api)
        ├── PkiError               certificates can't be issued or read (infra.drive.pki)
        ├── UnreachedError         a machine does not answer over SSH (infra.drive.ssh)
        ├── RemoteError            a command on a machine failed (infra.drive.ssh)
        ├── RegistryError          a registry did not return an image's manifest (infra.drive.registries)
        └── LocalAwsError          the embedded AWS did not start, or ended
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from infra import __version__

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Level(StrEnum):
    """The severity of a problem. Only an ``ERROR`` stops a command."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The position of a value. Lines and columns count from 1."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


Path: TypeAlias = tuple[str | int, ...]
"""The path of a value in a spec: keys of mappings and indices of lists."""


def dotted(path: Path) -> str:
    """A path as text: ``pools.gpu.instance_types[0]``, ``dns.records["a.b"]``."""
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
    """Parse the result of ``dotted``."""
    return tuple(int(found[2]) if found[2] else found[1] or found[3] for found in _PART.finditer(text))


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a spec.

    ``path`` is the dotted path in the spec (``pools.gpu.instance_types[0]``), empty for the whole file.
    ``code`` is stable (``NET012``; ``SPEC0xx`` for structure), for waivers and searches. ``hint`` is the fix
    ("did you mean p3.2xlarge?"). ``waived`` is the reason given in a waiver; a waived problem is still
    reported.
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
        """``file:line: path: message; hint [CODE]``, on one line, like a compiler's."""
        where = [str(self.position)] if self.position else []
        if self.path:
            where.append(self.path)
        text = ": ".join([*where, self.message])
        if self.hint:
            text += f"; {self.hint}"
        return f"{text} [{self.code}]"


class CausewayError(Exception):
    """The base of all our errors. Its text is complete: where, what, and the fix."""

    exit_code = 1


class UsageError(CausewayError):
    """Something requested does not exist, or the user did not confirm."""


class SpecError(CausewayError):
    """The spec cannot be used; contains all problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Sequence[Problem] = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class RenderError(CausewayError):
    """A template uses a value that the model does not have."""


class DriveError(CausewayError):
    """An error outside of Causeway: a tool, a cloud, a disk."""


class ToolError(DriveError):
    """A program failed."""

    def __init__(self, command: Sequence[str], exit_code: int, output: str) -> None:
        self.command = tuple(command)
        self.status = exit_code
        self.output = output
        tail = "\n".join(output.rstrip().splitlines()[-10:])
        super().__init__(f"{' '.join(command)}: exit code {exit_code}\n{tail}".rstrip())


class StalePlanError(DriveError):
    """The saved plan was made from another spec, or the state has changed since."""


class ProtectedError(DriveError):
    """The plan would destroy a stateful resource that was not named."""


class LocalAwsError(DriveError):
    """The embedded AWS could not be started, or ended."""


def newer(found: int, known: int) -> str:
    """Why a file, or a record, of a newer format than ``known`` is refused."""
    return (
        f"written by a newer Causeway: its format is {found}, and Causeway {__version__} knows {known}; "
        "update this one (pip install --upgrade causeway)"
    )
