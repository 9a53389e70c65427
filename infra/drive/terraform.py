"""Calls Terraform. No other module does.

python-terraform builds the command lines; the processes are run here, because it cannot stream output.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from infra.drive import diagnostics, process
from infra.drive.diagnostics import Diagnostic
from infra.drive.engine import Engine
from infra.errors import ToolError

LOCK_FILE = ".terraform.lock.hcl"

_SETTINGS = re.compile(r"^terraform\s*\{.*?^\}", re.MULTILINE | re.DOTALL)
_CALLS = re.compile(r'^\s*(?:module\s+"|source\s*=|version\s*=).*$', re.MULTILINE)


_PROVIDER: Final = re.compile(r'^provider\s+"', re.MULTILINE)


def _collector(verb: str, providers: int) -> str:
    """The value of GOGC: by how many percent Go's heap may grow before a garbage collection; Go's default is
    100.

    The AWS provider's schema is so large that collections take much time: at 300, planning three regions is
    a sixth faster, and takes 850 MiB instead of 500. But each region has its own provider process, so with
    more of them the value is lower: twenty regions with twenty pools take 2.7 GiB at 50, and 5.7 GiB at 300.
    Reading a plan starts one provider, and at 800 takes less memory than the plan did. A value in the user's
    environment takes precedence.
    """
    return "800" if verb == "show" else str(min(300, max(50, 1000 // max(providers, 1))))


SILENT: Final = {"TF_LOG_SDK": "OFF", "TF_LOG_PROVIDER_AWS": "OFF"}
"""Providers log each step of each call, 3,400 lines to validate one VPC, which Terraform parses and drops: a
twelfth of the CPU time of a plan. Source: "Managing Log Output", Terraform's plugin documentation."""

_GRACE: Final = 5.0
"""Seconds for calls to AWS in progress when an apply is stopped. Terraform's stop cancels them, but AWS may
still create the resource, whose id is then lost. Providers are separate processes, so they continue while
Terraform is suspended; most calls take less than a second."""


class TerraformError(ToolError):
    """Terraform failed; the text is from Terraform's diagnostics."""

    def __init__(
        self, command: Sequence[str], exit_code: int, output: str, found: Sequence[Diagnostic], folder: Path
    ) -> None:
        super().__init__(command, exit_code, output)
        self.diagnostics = tuple(found)
        errors = diagnostics.grouped((one for one in found if one.is_error), folder)
        if errors:
            self.args = ("\n".join([*errors, f"{' '.join(command)}: exit code {exit_code}"]),)


class StoppedError(ToolError):
    """A user, or the end of a CI job, stopped Terraform."""

    exit_code = 130

    def __init__(self, command: Sequence[str], status: int) -> None:
        super().__init__(command, status, "")
        applying = "apply" in command
        left = "What was done so far is in the state: plan again." if applying else "Nothing was changed."
        self.args = (f"{' '.join(command)} was stopped. {left}",)


class Listener(Protocol):
    """Receives the events of a run: see `infra.drive.progress`."""

    def begin(self, title: str) -> None:
        """A run starts."""

    def event(self, event: Mapping[str, Any]) -> None:
        """A line of the JSON stream."""

    def beat(self) -> None:
        """Called ten times per second."""

    def interrupted(self, times: int) -> None:
        """The user asked to stop for the first, second … time."""

    def end(self) -> None:
        """The run has ended, successful or not."""


class Silence:
    """A listener that ignores all events."""

    def begin(self, title: str) -> None: ...
    def event(self, event: Mapping[str, Any]) -> None: ...
    def beat(self) -> None: ...
    def interrupted(self, times: int) -> None: ...
    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Drifted:
    """A resource that differs from the state."""

    address: str
    type: str
    action: str
    """``update``, ``delete`` (AWS did not find it) or ``move``."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a Terraform command."""

    exit_code: int
    stdout: str
    """The lines of standard output that are not JSON events."""
    diagnostics: tuple[Diagnostic, ...]
    events: Mapping[str, int]
    """Number of JSON events by type."""
    drifted: tuple[Drifted, ...]
    """Resources that a plan found changed outside of Terraform."""

    @property
    def has_changes(self) -> bool:
        """For a plan: whether applying it would change anything."""
        return self.exit_code == 2


class Terraform:
    """Terraform in one folder.

    ``folder`` contains the root module. ``data`` (TF_DATA_DIR: providers, modules, backend record) is
    separate, by default in ``../state/.terraform``, so that the folder can be rendered again. ``env`` is
    added to the environment of this process: credentials, AWS_ENDPOINT_URL.
    """

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        env: Mapping[str, str] | None = None,
        *,
        data: Path | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.engine = engine
        self.folder = folder.absolute()
        self.data = (data or folder.parent / "state" / ".terraform").absolute()
        self.listener: Listener = listener or Silence()
        given = {**os.environ, **(env or {})}
        wants_logs = any(name.startswith("TF_LOG") and value for name, value in given.items())
        self.env = {
            **({} if wants_logs else SILENT),
            **given,
            "TF_IN_AUTOMATION": "1",
            "TF_INPUT": "0",
            "CHECKPOINT_DISABLE": "1",
            "TF_DATA_DIR": str(self.data),
            # Another workspace would have another state than the one that plans are compared with.
            "TF_WORKSPACE": "default",
        }

    # -- commands -------------------------------------------------------------------------------------

    def init(self, *, force: bool = False) -> bool:
        """Install providers and modules and initialise the backend; False if that was not needed.

        It is skipped if nothing that it depends on has changed since it last succeeded: the engine, the CLI
        configuration, the settings blocks, the module calls and the provider lock file.
        """
        stamp = self.data.with_name("init.sha256")
        if not force and self.data.is_dir() and _text(stamp) == self._init_inputs():
            return False
        stamp.unlink(missing_ok=True)
        self.data.mkdir(parents=True, exist_ok=True)
        # `-reconfigure`, as a state is moved by `infra.drive.state_move`, never by Terraform.
        self._run("init", title="Preparing", input=False, reconfigure=_flag(), no_color=_flag())
        stamp.write_text(self._init_inputs(), encoding="utf-8")
        return True

    def plan(
        self,
        out: Path,
        *,
        destroy: bool = False,
        targets: Iterable[str] = (),
        refresh_only: bool = False,
        title: str = "Planning",
    ) -> Ran:
        """Write a plan to ``out``; the exit code is 2 if it would change anything, else 0.

        Runs init first if needed, also if Terraform itself reports so.
        """
        fresh = self.init()
        try:
            return self._plan(out, destroy, tuple(targets), refresh_only, title)
        except TerraformError as problem:
            if fresh or not any(map(diagnostics.is_init_needed, problem.diagnostics)):
                raise
        self.init(force=True)
        return self._plan(out, destroy, tuple(targets), refresh_only, title)

    def _plan(
        self, out: Path, destroy: bool, targets: tuple[str, ...], refresh_only: bool, title: str
    ) -> Ran:
        return self._run(
            "plan",
            title=title,
            ok=(0, 2),
            json=_flag(),
            input=False,
            detailed_exitcode=_flag(),
            out=str(out.absolute()),
            destroy=_flag() if destroy else None,
            refresh_only=_flag() if refresh_only else None,
            target=list(targets),
        )

    def apply(self, plan_file: Path, *, title: str = "Applying") -> Ran:
        """Apply a saved plan."""
        return self._run("apply", str(plan_file.absolute()), title=title, json=_flag(), input=False)

    def push(self, state: Mapping[str, Any]) -> None:
        """Store a state that was pulled and changed; its serial must be higher than the stored one's."""
        file = self.data.with_name("push.tfstate")
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:  # noqa: PTH123
            json.dump(state, stream)
        try:
            self._run("state push", str(file), title="Storing")
        finally:
            file.unlink()

    def show(self, plan_file: Path | None = None) -> dict[str, Any]:
        """A saved plan, or by default the state, in Terraform's documented JSON format.

        Source: https://developer.hashicorp.com/terraform/internals/json-format
        """
        args = [str(plan_file.absolute())] if plan_file else []
        ran = self._run("show", *args, title="Reading", env=self._trusted(), json=_flag(), no_color=_flag())
        shown = json.loads(ran.stdout)
        assert isinstance(shown, dict)
        return shown

    def _trusted(self) -> dict[str, str]:
        """The environment for a command that only reads what another has just written: providers are used
        from their folders, without verifying the checksum of 700 MB that the previous command has
        verified (Terraform CLI configuration, "Development Overrides for Provider Developers")."""
        found: dict[str, list[Path]] = {}
        for platform in sorted((self.data / "providers").glob("*/*/*/*/*")):
            source = "/".join(platform.parts[-5:-2])
            found.setdefault(source, []).append(platform)
        if not found or any(len(versions) > 1 for versions in found.values()):
            return {}
        lines = [
            f"    {json.dumps(source)} = {json.dumps(str(path[0].resolve()))}\n"
            for source, path in found.items()
        ]
        text = "provider_installation {\n  dev_overrides {\n" + "".join(lines) + "  }\n  direct {}\n}\n"
        config = self.data.with_name("read.tfrc")
        if _text(config) != text:
            config.write_text(text, encoding="utf-8")
        return {"TF_CLI_CONFIG_FILE": str(config)}

    def pull(self) -> dict[str, Any]:
        """The state, whatever its backend; empty before the first apply. It contains secrets: do not log it.
        The format is Terraform's own (version 4), which names each resource's provider configuration."""
        self.init()
        text = self._run("state pull", title="Reading", no_color=_flag()).stdout
        state = json.loads(text) if text.strip() else {}
        assert isinstance(state, dict)
        return state

    # -- how ------------------------------------------------------------------------------------------

    def command(self, verb: str, *args: str, **options: object) -> list[str]:
        """The command line: ``options`` as in python-terraform."""
        import python_terraform

        library: Any = python_terraform  # no type annotations
        builder = library.Terraform(working_dir=str(self.data), terraform_bin_path=self.engine.argv[0])
        built = builder.generate_cmd_string(verb, *args, **options)
        return [*self.engine.argv, *built[1:]]

    def _run(
        self,
        verb: str,
        *args: str,
        title: str,
        ok: tuple[int, ...] = (0,),
        env: Mapping[str, str] | None = None,
        **options: object,
    ) -> Ran:
        command = self.command(verb, *args, **options)
        plain: list[str] = []
        found: list[Diagnostic] = []
        events: dict[str, int] = {}
        drifted: list[Drifted] = []

        def on_line(line: str) -> None:
            event = _event(line)
            if event is None:
                plain.append(line)
                return
            kind = str(event["type"])
            events[kind] = events.get(kind, 0) + 1
            if kind == "diagnostic":
                found.append(diagnostics.parse(event["diagnostic"]))
            elif kind == "resource_drift":
                one = event["change"]["resource"]
                action = str(event["change"]["action"])
                drifted.append(Drifted(str(one["addr"]), str(one["resource_type"]), action))
            self.listener.event(event)

        self.listener.begin(title)
        try:
            finished = process.run(
                command,
                folder=self.folder,
                env={"GOGC": _collector(verb, self._providers()), **self.env, **(env or {})},
                on_line=on_line,
                on_beat=self.listener.beat,
                on_interrupt=self.listener.interrupted,
                second_cuts=True,
                grace=_GRACE if verb == "apply" else 0,
            )
        finally:
            self.listener.end()
        stdout = "\n".join(plain)
        said = tuple(diagnostics.distinct(found))
        # A Ctrl-C too late for a plan must still prevent the apply that follows; a completed apply cannot be
        # undone.
        if finished.exit_code in ok and (verb == "apply" or not finished.interrupted):
            return Ran(finished.exit_code, stdout, said, events, tuple(drifted))
        named = (self.engine.name if len(self.engine.argv) == 1 else "terraform", *verb.split())
        if finished.interrupted:
            raise StoppedError(named, finished.exit_code)
        raise TerraformError(named, finished.exit_code, finished.stderr or stdout, said, self._shown_folder())

    def _providers(self) -> int:
        """The number of provider configurations in the root: Terraform starts a process for each."""
        return sum(len(_PROVIDER.findall(_text(path))) for path in self.folder.glob("*.tf"))

    def _shown_folder(self) -> Path:
        """The folder as the user would write it."""
        here = Path.cwd()
        return self.folder.relative_to(here) if self.folder.is_relative_to(here) else self.folder

    def _init_inputs(self) -> str:
        told = hashlib.sha256(repr((self.engine.argv, self.engine.version)).encode())
        config = self.env.get("TF_CLI_CONFIG_FILE", "")
        told.update(_text(Path(config)).encode() if config else b"")
        told.update(_text(self.folder / LOCK_FILE).encode())
        for path in sorted(self.folder.rglob("*.tf")):
            text = _text(path)
            parts = [str(path.relative_to(self.folder)), *_SETTINGS.findall(text), *_CALLS.findall(text)]
            if len(parts) > 1:
                told.update("\n".join(parts).encode())
        return told.hexdigest()


def _flag() -> object:
    from python_terraform import IsFlagged

    flag: object = IsFlagged
    return flag


def _event(line: str) -> dict[str, Any] | None:
    """A line of the machine-readable UI, which always has a type."""
    if not line.startswith('{"@'):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "type" in event else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
