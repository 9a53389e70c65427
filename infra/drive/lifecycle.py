"""Plan, apply, destroy and drift of one environment's Terraform.

Nothing here prints or prompts; ``infra.commands`` does both, with what these functions return.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from infra.drive import (
    clock,
    destruction,
    diagnostics,
    last_applied,
    pool_instances,
    rds,
    repair,
    saved_plan,
    shared_last_applied,
    undeclared,
    unfinished,
    workspace,
)
from infra.drive import cost as costs
from infra.drive import drift as drifts
from infra.drive import plan as plans
from infra.drive.aws import Aws
from infra.drive.build_folders import Folders
from infra.drive.engine import Engine
from infra.drive.pool_instances import Jobs
from infra.drive.refresh import Settled, settle
from infra.drive.repair import Repaired
from infra.drive.saved_plan import Inputs, SavedPlan
from infra.drive.state_backends import Place
from infra.drive.terraform import LOCK_FILE, Listener, Ran, Terraform, TerraformError
from infra.drive.undeclared import Undeclared
from infra.drive.undeclared.model import declared
from infra.drive.unfinished import Creation
from infra.errors import DriveError, ProtectedError, UsageError
from infra.files import Files
from infra.nearest import meant_one_of


@dataclass(frozen=True, slots=True)
class Job:
    """One environment, as rendered into its build folder."""

    environment: str
    build: Path
    """``build/<env>``."""
    engine: Engine
    files: Files
    """All rendered files; paths relative to ``build``."""
    spec: str
    """The spec's text, or any text that changes with its meaning."""
    lock: str
    """The text of the spec's lock file."""
    sites: Mapping[str, str] = field(default_factory=dict)
    """Module call in the root module → site: ``us_west_2`` → ``us-west-2``."""
    regions: Mapping[str, str] = field(default_factory=dict)
    """Site → AWS region."""
    retired: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Site that left the spec → addresses of its resources that the state still has, for ``-target``."""
    env: Mapping[str, str] = field(default_factory=dict)
    """For Terraform: credentials, AWS_ENDPOINT_URL."""
    place: Place | None = None
    """The location of the state; None for a local one."""
    account: str = ""
    """The AWS account of the credentials; empty if not relevant."""
    options: str = ""
    """The command-line options that select the environment, in hints; by default ``--env lab``."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """What an apply remembers besides: of the version that applies."""

    @property
    def folders(self) -> Folders:
        return Folders(self.build.absolute())

    @property
    def named(self) -> str:
        """The options that select this environment on a command line."""
        return self.options or f"--env {self.environment}"

    def inputs(self) -> Inputs:
        """The inputs of a plan made now."""
        providers = self.folders.root / LOCK_FILE
        return Inputs(
            files=fingerprint(self.files),
            spec=_sha256(self.spec),
            lock=_sha256(self.lock),
            engine=str(self.engine),
            providers=_sha256(providers.read_text(encoding="utf-8")) if providers.exists() else "",
        )

    def aws(self) -> Aws:
        """AWS's APIs, with the environment of Terraform."""
        return Aws({**os.environ, **self.env})

    def terraform(self, listener: Listener | None = None, *, root: Path | None = None) -> Terraform:
        """Terraform in the rendered root module, or in ``root``, with the same state."""
        folders = self.folders
        return Terraform(self.engine, root or folders.root, self.env, data=folders.data, listener=listener)


def fingerprint(files: Files) -> str:
    """A hash of the files rendered for Terraform, which are the only ones a plan depends on."""
    return workspace.fingerprint(
        {path: text for path, text in files.items() if path.startswith("terraform/")}
    )


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan that was made and saved."""

    plan: plans.Plan
    saved: SavedPlan
    cost: costs.Cost | None
    """None without a price table, and if nothing changes."""
    undeclared: tuple[Undeclared, ...] = ()
    """Undeclared settings on our resources in AWS; the apply removes those that can be removed."""
    untainted: tuple[str, ...] = ()
    """Stateful resources whose creation had not finished: the plan updates them in place."""
    adopted: tuple[str, ...] = ()
    """Resources whose creation an earlier apply began and that exist in AWS; they were added to the state."""
    lasting: tuple[plans.Change, ...] = ()
    """Changes made outside of Terraform that the apply leaves in place."""

    @property
    def exit_code(self) -> int:
        """2 if applying would change anything, as with ``terraform plan -detailed-exitcode``."""
        return 2 if self.saved.has_changes else 0


def plan(
    job: Job,
    *,
    destroy: bool = False,
    only: Iterable[str] = (),
    named: Iterable[str] = (),
    out: Path | None = None,
    pending: bool = False,
    prices: costs.Prices | None = None,
    jobs: Jobs | None = None,
    listener: Listener | None = None,
) -> Planned:
    """Make a plan and save it for `apply`.

    ``only`` limits it to sites; ``named`` are addresses (of resources, or modules that contain them) of
    stateful resources that may be destroyed; ``out`` gets a copy of Terraform's plan file; ``pending`` is
    for a caller that prompts before it applies this plan; ``jobs`` finds the pods on instances that would be
    terminated. Raises `ProtectedError` if a resource that is not named would be destroyed and its
    ``prevent_destroy`` stops Terraform. A stateful resource that would be destroyed only because it is
    tainted is untainted instead, unless it is named.
    """
    folders, only, named = job.folders, tuple(only), tuple(named)
    narrowed = targets(job.sites, only, job.retired)
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"{out}: folder {out.parent} does not exist; create it first")
    with workspace.locked(job.build):
        saved_plan.discard(folders)
        destruction.discard(folders)
        folders.plan.mkdir(parents=True, exist_ok=True)
        job.terraform(listener).init()
        root = destruction.unprotect(folders) if destroy or named else folders.root
        fresh = folders.plan / "fresh.tfplan"
        terraform = job.terraform(listener, root=root)
        guards = destruction.guarded(folders.root)
        begun = _adopt(job, terraform)
        known = () if destroy else _drifted(folders)

        def attempt() -> tuple[bool, Mapping[str, Any], plans.Plan]:
            ran = _believed(lambda: terraform.plan(fresh, destroy=destroy, targets=narrowed))
            # Reading a plan costs as much as starting the provider, so an empty plan is not read.
            tells = ran.has_changes or bool(ran.drifted) or bool(known)
            shown = terraform.show(fresh) if tells else {"terraform_version": job.engine.version}
            return ran.has_changes, shown, plans.parse(shown, job.sites, guarded=guards)

        untainted: tuple[str, ...] = ()
        with _explained(job, named, only, jobs, listener):
            if destroy:
                has_changes, shown, parsed = attempt()
            else:
                (has_changes, shown, parsed), untainted = _without_taints(job, terraform, attempt, named)
        _refuse_taken(begun, parsed)
        position = saved_plan.state_position(folders)
        foreign = _undeclared(job, only)
        removed = tuple(one for one in foreign if one.removal)
        parsed, ending = _with_instances(job, parsed, shown, jobs)
        drifted = () if destroy else drifts.lasting(shown, known, _made(folders))
        if out is not None:
            _copy(fresh, out)
        kept = saved_plan.save(
            folders,
            SavedPlan(
                environment=job.environment,
                kind="destroy" if destroy else "apply",
                made=clock.now().isoformat(timespec="seconds"),
                inputs=job.inputs(),
                state=position,
                root=root.name,
                named=named,
                protected=tuple(
                    saved_plan.Protected(one.address, one.action, one.loss, one.reason)
                    for one in parsed.protected
                ),
                counts={action: parsed.count(action) for action in ("create", "update", "replace", "delete")},
                has_changes=has_changes or bool(removed),
                only=only,
                pending=pending,
                undeclared=removed,
                leaving=parsed.leaving,
                absent=_absent(parsed),
                drifted=drifted,
                creating=unfinished.creations(shown),
                ending=ending,
            ),
            fresh,
        )
        money = None
        if prices is not None and has_changes:
            money = costs.monthly(shown, prices, sites=job.sites, regions=job.regions)
        return Planned(
            parsed,
            kept,
            money,
            foreign,
            untainted,
            tuple(sorted(one.address for one, _ in begun.ours)),
            drifts.named(shown, job.sites, drifted) if drifted else (),
        )


_LOOKS: Final = (3.0, 9.0)
"""Seconds to wait before planning again, if a plan did not find a stateful resource."""


def _believed(plan: Callable[[], Ran]) -> Ran:
    """Run a plan. If it did not find a stateful resource, it is repeated: AWS is eventually consistent, and
    creating a second VPC is worse than waiting for some seconds."""
    for pause in _LOOKS:
        ran = plan()
        if not any(one.action == "delete" and destruction.loss(one.type, None) for one in ran.drifted):
            return ran
        time.sleep(pause)
    return plan()


_T = TypeVar("_T", bound=tuple[Any, Any, plans.Plan])


def _without_taints(
    job: Job, terraform: Terraform, attempt: Callable[[], _T], named: Iterable[str]
) -> tuple[_T, tuple[str, ...]]:
    """A plan, and the stateful resources that were untainted for it.

    A killed apply leaves the resource that it was creating tainted, and Terraform would replace it.
    """
    problem: TerraformError | None = None
    planned: _T | None = None
    try:
        planned = attempt()
        losing = [one.address for one in planned[2].protected if one.actions != ("delete",)]
    except TerraformError as error:
        problem = error
        losing = list(diagnostics.prevented(error.diagnostics))
    losing = [address for address in losing if not destruction.covers(named, address)]
    # A resource that cannot replace itself is untainted in any case.
    if losing or (planned and any(one.action == "replace" for one in planned[2].changes)):
        state = terraform.pull()
        if repaired := repair.untaint(state, {*losing, *repair.tainted(state)}):
            _store(job, terraform, repaired.state, repaired.untainted)
            return attempt(), repaired.untainted
    if planned is None:
        assert problem is not None
        raise problem
    return planned, ()


def targets(
    sites: Mapping[str, str], only: Iterable[str], retired: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[str, ...]:
    """The ``-target`` addresses of these sites; ``sites`` and ``retired`` as in `Job`.

    Raises ``UsageError`` for an unknown site.
    """
    found: list[str] = []
    for wanted in only:
        modules = [module for module, site in sites.items() if site == wanted]
        if not modules:
            hint = meant_one_of(wanted, set(sites.values()))
            raise UsageError(f"no AWS site {wanted!r} to plan for; {hint}")
        found += (retired or {}).get(wanted) or [f"module.{module}" for module in modules]
    return tuple(found)


def waiting(job: Job) -> SavedPlan | None:
    """The plan that was saved to be applied later, stale or not."""
    found = saved_plan.load(job.folders)
    return None if found is None or found.pending else found


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an apply reports, beyond the changes of the plan."""

    restored: tuple[str, ...] = ()
    """Addresses that AWS did not find right after they were changed; they were restored in the state."""
    settled: Settled = field(default_factory=Settled)
    unshared: str = ""
    """Why the ledger could not be stored beside the state; empty if it was."""


def apply(
    job: Job, plan: SavedPlan, *, named: Iterable[str] = (), listener: Listener | None = None
) -> Outcome:
    """Apply ``plan``, the one shown to the user, and record it.

    The plan is used up, even if the apply fails: a new plan shows what remains.
    """
    folders = job.folders
    restored: tuple[str, ...] = ()
    with workspace.locked(job.build):
        _check(job, plan, named)
        # Copied again, as expressions that read files are evaluated again during apply.
        root = folders.root if plan.root == folders.root.name else destruction.unprotect(folders)
        before = _state(job) if plan.has_changes else {}
        if plan.kind != "destroy":
            _note(job, plan, before)
        if plan.undeclared:
            # First, as Terraform may be about to create the same rule that somebody added.
            undeclared.remove(job.aws(), plan.undeclared)
        if plan.has_changes:
            terraform = job.terraform(listener, root=root)
            rds.lift_protection(job.aws(), before, plan.leaving)
            try:
                terraform.apply(saved_plan.plan_file(folders))
            except TerraformError as problem:
                _rescue(folders, root, problem)
                if any(map(diagnostics.is_stale_plan, problem.diagnostics)):
                    saved_plan.discard(folders)
                    raise saved_plan.stale(plan, "the state has moved on", job.named) from None
                _repair_after(problem, job, plan, before)
                _explain_half_done(job, plan, problem)
                raise
            except DriveError as problem:  # stopped: some changes were made
                saved_plan.discard(folders)
                _repair_after(problem, job, plan, before)
                raise
            restored = _repair(job, plan, before).restored
        state = _state(job)
        position = {"lineage": state.get("lineage"), "serial": state.get("serial")}
        saved_plan.discard(folders)
        destruction.discard(folders)
        if plan.kind == "destroy":
            last_applied.forget(folders)
            if job.place is not None:
                shared_last_applied.forget(job.place, position)
        else:
            # An apply limited to sites has not compared the others.
            done = targets(job.sites, plan.only, job.retired)
            left = [
                one
                for one in (begun(folders) if plan.only else ())
                if one.address not in repair.held(state) and not destruction.covers(done, one.address)
            ]
            there = _there(folders)
            last_applied.remember(
                folders,
                job.files,
                {
                    **job.record,
                    "environment": job.environment,
                    "applied": clock.now().isoformat(timespec="seconds"),
                    "only": list(plan.only),
                    "engine": str(job.engine),
                    "spec": job.spec,
                    "lock": job.lock,
                    "account": job.account,
                    "state": position,
                    "drifted": list(plan.drifted),
                    "creating": [asdict(one) for one in left],
                    "there": {one.address: there[one.address] for one in left if one.address in there},
                    "made": list(_made(folders)) if plan.only else [],
                },
            )
        settled = Settled()
        if plan.kind != "destroy" and plan.has_changes:
            settled = settle(job.terraform(listener), folders.state / "settle.tfplan")
        return Outcome(restored, settled, share(job))


def outputs(job: Job) -> dict[str, Any]:
    """The outputs of the last apply, including sensitive ones: do not log them. Empty before the first
    apply."""
    job.terraform().init()
    return {name: one["value"] for name, one in _state(job).get("outputs", {}).items()}


def share(job: Job) -> str:
    """Store the ledger beside the state; returns why that failed, or an empty text. The apply itself is
    complete."""
    try:
        if job.place is not None:
            shared_last_applied.publish(job.folders, job.place)
    except DriveError as problem:
        return str(problem)
    return ""


@dataclass(frozen=True, slots=True)
class Drift:
    """Differences between AWS and the state, or the configuration last applied."""

    changes: tuple[plans.Change, ...]
    undeclared: tuple[Undeclared, ...] = ()

    @property
    def exit_code(self) -> int:
        """2 if there are any, as with ``terraform plan -detailed-exitcode``."""
        return 2 if self.changes or self.undeclared else 0


def drift(job: Job, *, listener: Listener | None = None) -> Drift:
    """Compare AWS with the state and with what was applied. Changes nothing, not even the saved plan.

    The configuration is compared if it is still the one last applied, as changes made during an apply are
    already in the state. Raises ``DriveError`` if undeclared settings cannot be queried.
    """
    with workspace.locked(job.build):
        terraform = job.terraform(listener)
        look = job.folders.state / "drift.tfplan"
        try:
            ran = terraform.plan(look, refresh_only=not _is_applied(job))
            foreign = _undeclared(job, ())
            known = _drifted(job.folders)
            # A plan that would change nothing has drift all the same, where Terraform ignores the attribute.
            if not (ran.has_changes or ran.drifted or known):
                return Drift((), foreign)
            shown = terraform.show(look)
            changes = drifts.without_undone(drifts.changes(shown, job.sites), shown, known)
            return Drift(drifts.together(changes, drifts.named(shown, job.sites, known)), foreign)
        finally:
            look.unlink(missing_ok=True)


# -- parts -----------------------------------------------------------------------------------------------


def _drifted(folders: Folders) -> tuple[drifts.Row, ...]:
    """Drift that earlier applies found and left in place."""
    return tuple((last_applied.about(folders) or {}).get("drifted", ()))


def begun(folders: Folders) -> tuple[Creation, ...]:
    """Resources that failed applies were about to create."""
    return tuple(Creation(**one) for one in (last_applied.about(folders) or {}).get("creating", ()))


def _there(folders: Folders) -> Mapping[str, list[str]]:
    """Address of a resource to be created → ids of resources that had its name before, which are not ours."""
    return dict((last_applied.about(folders) or {}).get("there", {}))


def _made(folders: Folders) -> tuple[str, ...]:
    """Addresses whose creation was begun by applies, none of which has succeeded since."""
    return tuple((last_applied.about(folders) or {}).get("made", ()))


def _note(job: Job, plan: SavedPlan, state: repair.State) -> None:
    """Record before an apply what must survive a failure: the account of its resources, what it creates, and
    the drift that it will write into the state."""
    before = last_applied.recall(job.folders)
    first = {"environment": job.environment, "account": job.account, "begun": True}
    about = dict(before.about if before else first)
    if plan.has_changes:
        creating = {one.address: one for one in (*begun(job.folders), *plan.creating)}
        # Terraform's own resources do not drift.
        made = {*_made(job.folders), *(each for each in plan.absent if "aws_" in each)}
        noted = {
            "creating": [asdict(one) for one in creating.values()],
            "there": _standing(job, plan, state),
            "made": sorted(made),
            "drifted": list(plan.drifted),
        }
        about |= {key: rows for key, rows in noted.items() if rows or key in about}
    if about != (before.about if before else first) or (not before and job.account):
        last_applied.remember(job.folders, before.files if before else {}, about)
        share(job)


def _standing(job: Job, plan: SavedPlan, state: repair.State) -> dict[str, list[str]]:
    """`_there`, including this apply. Resources that an earlier apply of ours began to create may exist by
    now, and are ours."""
    before, noted = _there(job.folders), begun(job.folders)
    asked = [one for one in plan.creating if one not in noted or one.address in before]
    if not asked:
        return dict(before)
    looked = {one.address for one in asked}
    found = {address: ids for address, ids in before.items() if address not in looked}
    for one, identifier in unfinished.standing(job.aws(), asked, repair.held(state).values()):
        if one not in noted or identifier in before[one.address]:
            found.setdefault(one.address, []).append(identifier)
    return found


def _adopt(job: Job, terraform: Terraform) -> unfinished.Found:
    """Add resources to the state whose creation was begun by an apply and not completed since."""
    if not (noted := begun(job.folders)):
        return unfinished.Found()
    state = _state(job)
    held = repair.held(state)
    lost = [one for one in noted if one.address not in held]
    found = unfinished.find(job.aws(), lost, held.values(), _there(job.folders))
    if found.ours:
        adopted = repair.adopted(state, (one.row(identifier) for one, identifier in found.ours))
        addresses = tuple(one.address for one, _ in found.ours)
        _store(job, terraform, adopted, addresses)
        # The plan and the search for undeclared settings need more attributes than the id.
        settled = settle(terraform, job.folders.state / "adopt.tfplan", targets=addresses)
        if settled != Settled():
            terraform.push(
                {**adopted, "resources": state.get("resources", []), "serial": adopted["serial"] + 1}
            )
            listed = "".join(f"\n  {address}" for address in addresses)
            raise DriveError(
                "what an earlier apply had begun to create is in AWS, and could not be read:"
                f"{listed}\n{settled.problem or 'AWS does not find it yet'}\nRun this again in a minute."
            )
    return found


def _store(job: Job, terraform: Terraform, state: repair.State, left: Iterable[str]) -> None:
    """Store the state with changes for what an apply ``left`` unfinished. Raises `DriveError`, naming who
    can do it, if these credentials may not."""
    try:
        terraform.push(state)
    except TerraformError as problem:
        if not diagnostics.is_denied(problem.output):
            raise
        listed = "".join(f"\n  {address}" for address in left)
        raise DriveError(
            f"an earlier apply left these unfinished, and the state has to learn of them:{listed}\n"
            "AWS does not let these credentials write the state. Somebody who may apply has to run this once:"
            f"\n  invoke plan {job.named}"
        ) from None


def _refuse_taken(begun: unfinished.Found, plan: plans.Plan) -> None:
    """Raise `DriveError` if the plan creates a resource whose name is taken by one that is not ours."""
    creates = {one.address for one in plan.changes if one.action == "create"}
    listed = "".join(
        f"\n  {one.address}: {identifier} in {one.region} exists already and is not in this state"
        for one, identifier in (*begun.foreign, *begun.earlier)
        if one.address in creates
    )
    if listed:
        raise DriveError(
            f"AWS has what is to be created, and no apply of this state has created it:{listed}\n"
            "Nothing was changed. If another clone or state of this environment has it, continue there. "
            "Otherwise delete or rename it in AWS, or bring it into this state with `terraform import`."
        )


def _is_applied(job: Job) -> bool:
    """Whether the rendered files are those last applied, to all sites."""
    before = last_applied.recall(job.folders)
    if before is None or before.about.get("only"):
        return False
    return fingerprint(before.files) == fingerprint(job.files)


def _undeclared(job: Job, only: tuple[str, ...]) -> tuple[Undeclared, ...]:
    """Undeclared settings in the sites ``only``, or in all."""
    held = declared(_state(job), job.sites, job.regions)
    found = undeclared.find(job.aws(), held)
    return tuple(one for one in found if not only or one.site in only)


def _copy(plan_file: Path, out: Path) -> None:
    """Copy Terraform's plan file with mode 0600, as it contains secrets."""
    fresh = out.with_name(f"{out.name}.new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:  # noqa: PTH123
        stream.write(plan_file.read_bytes())
    fresh.replace(out)


def _repair(job: Job, plan: SavedPlan, before: repair.State) -> Repaired:
    """Undo changes of the state by an apply that no plan contains: see `infra.drive.repair`."""
    repaired = repair.repair(before, _state(job), {*plan.leaving, *plan.absent})
    if repaired:
        job.terraform().push(repaired.state)
    return repaired


def stored(job: Job) -> repair.State:
    """The state, in a folder in which Terraform may not have been initialised.

    Only Terraform knows which backend such a folder has, and whether a state is empty; an existing local one
    is read without starting it, which takes seconds.
    """
    path = None if job.place else saved_plan.local_state(job.folders)
    return _state(job) if path and path.exists() else job.terraform().pull()


def _state(job: Job) -> repair.State:
    """The state as Terraform stores it; a local one is read without starting Terraform."""
    path = saved_plan.local_state(job.folders)
    if path is None:
        return job.terraform().pull()
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        return job.terraform().pull()  # which reports what is wrong with it
    assert isinstance(state, dict)
    return state


def _repair_after(problem: DriveError, job: Job, plan: SavedPlan, before: repair.State) -> None:
    """`_repair` after an apply that failed or was stopped; the result is added to the message of
    ``problem``."""
    try:
        repaired = _repair(job, plan, before)
    except DriveError as another:  # such as the lock of a killed Terraform
        problem.args = (f"{problem}\nThe state could not be checked: {another}",)
        return
    if repaired.untainted:
        listed = "".join(f"\n  {address}" for address in repaired.untainted)
        problem.args = (f"{problem}\nCreated, and completed by the next apply:{listed}",)
    if repaired.restored:
        listed = "".join(f"\n  {address}" for address in repaired.restored)
        problem.args = (
            f"{problem}\nAWS did not find these right after a change; the state keeps them:{listed}",
        )


@contextmanager
def _explained(
    job: Job, named: tuple[str, ...], only: tuple[str, ...], jobs: Jobs | None, listener: Listener | None
) -> Iterator[None]:
    try:
        yield
    except TerraformError as problem:
        if not diagnostics.prevented(problem.diagnostics):
            raise
        raise _refused(job, named, only, jobs, listener) from None


def _refused(
    job: Job, named: tuple[str, ...], only: tuple[str, ...], jobs: Jobs | None, listener: Listener | None
) -> ProtectedError:
    """The error for a plan that ``prevent_destroy`` stopped, with everything that it would destroy.

    Terraform stops at the first protected resource, before its dependents. So a plan is made in the copy
    without ``prevent_destroy``, and discarded.
    """
    folders = job.folders
    look = folders.plan / "look.tfplan"
    terraform = job.terraform(listener, root=destruction.unprotect(folders))
    try:
        terraform.plan(look, targets=targets(job.sites, only, job.retired))
        shown = terraform.show(look)
        plan = plans.parse(shown, job.sites, guarded=destruction.guarded(folders.root))
        plan, _ = _with_instances(job, plan, shown, jobs)
    finally:
        look.unlink(missing_ok=True)
        destruction.discard(folders)
    lost = [change for change in plan.protected if not destruction.covers(named, change.address)]
    lines = ["the spec as it is now needs these destroyed or replaced, and they cannot be recovered:"]
    lines += [f"  {change.address}: {change.loss}" for change in lost]
    lines += leaving(job, plan)
    addresses = _to_name(job, (change.address for change in lost))
    narrowing = "".join(f" --only {site}" for site in only)
    lines += [
        "To see why, which changes nothing yet:",
        f"  invoke plan {job.named}{narrowing} {destroying([*named, *addresses])}",
    ]
    return ProtectedError("\n".join(lines))


def _with_instances(
    job: Job, plan: plans.Plan, shown: Mapping[str, Any], jobs: Jobs | None
) -> tuple[plans.Plan, tuple[pool_instances.Ending, ...]]:
    """The plan, with groups that have instances counted as stateful, and the groups that it destroys."""
    ending = pool_instances.ending(shown)
    if not ending:
        return plan, ()
    ending = pool_instances.count(_aws(job), ending)
    new = pool_instances.started(shown)
    return pool_instances.protect(plan, ending, new=new, jobs=jobs, options=job.named), ending


def _absent(plan: plans.Plan) -> tuple[str, ...]:
    """Addresses without a resource in AWS: those to create, and those that somebody deleted."""
    created = (one.previous_address or one.address for one in plan.changes if one.action == "create")
    deleted = (one.address for one in plan.drift if one.action == "delete")
    return tuple(sorted({*created, *deleted}))


def leaving(job: Job, plan: plans.Plan) -> list[str]:
    """A line for each site that left the spec and that ``plan`` destroys."""
    counts = {site: plan.count("delete", site) for site in job.retired}
    return [
        f"Site {site} ({job.regions[site]}) is no longer in the spec: its {count} resources are destroyed."
        for site, count in counts.items()
        if count
    ]


def _to_name(job: Job, addresses: Iterable[str]) -> list[str]:
    """What the user has to name to destroy these: for a site that left the spec, its module."""
    modules = [f"module.{module}" for module, site in job.sites.items() if site in job.retired]
    return list(
        dict.fromkeys(
            next((module for module in modules if destruction.covers([module], address)), address)
            for address in addresses
        )
    )


def _check(job: Job, plan: SavedPlan, named: Iterable[str]) -> None:
    """Raise `StalePlanError` or `ProtectedError` unless ``plan`` is the saved one and may be applied now.

    A plan to destroy everything needs no names, as the user has typed the environment's name.
    """
    if saved_plan.load(job.folders) != plan:
        raise saved_plan.stale(plan, "another run has planned or applied in the meantime", job.named)
    saved_plan.check(
        job.folders, plan, job.inputs(), saved_plan.state_position(job.folders), options=job.named
    )
    if plan.kind != "destroy":
        _require_drained(job, plan)
        _require_names(job, plan, tuple(named))


def _require_drained(job: Job, plan: SavedPlan) -> None:
    """Count the instances of the groups to be destroyed again. Raises `StalePlanError` if some were launched
    since the plan; `ProtectedError` if AWS would refuse during the apply."""
    if not plan.ending:
        return
    now = pool_instances.count(_aws(job), plan.ending)
    if started := pool_instances.added(plan.ending, now):
        said = "; ".join(f"{one.name}: {pool_instances.listed(one.instances)}" for one in started)
        raise saved_plan.stale(plan, f"instances have started in what it destroys ({said})", job.named)
    if held := pool_instances.in_the_way(now):
        raise ProtectedError(
            "AWS does not delete a placement group or a subnet that has instances:\n"
            + "\n".join(f"  {one.name}: {pool_instances.listed(one.instances)}" for one in held)
            + "\nDrain first, then plan again:\n"
            + "\n".join(f"  {command}" for command in _drains(job, held))
        )


def _drains(job: Job, held: Iterable[pool_instances.Ending]) -> Iterable[str]:
    commands = (command for one in held for command in pool_instances.drain_commands(one, job.named))
    return dict.fromkeys(commands) or ("terminate these instances: they are of no pool",)


def _aws(job: Job) -> Aws:
    return Aws({**os.environ, **job.env})


def _require_names(job: Job, found: SavedPlan, named: tuple[str, ...]) -> None:
    missing = [one for one in found.protected if not destruction.covers(named, one.address)]
    if not missing:
        return
    said = []
    for one in missing:
        verb = "replaces" if one.action == "replace" else "destroys"
        said.append(f"  {verb} {one.address}: {one.loss}" + (f"; because {one.reason}" if one.reason else ""))
    raise ProtectedError(
        "the plan destroys what cannot be recovered:\n"
        + "\n".join(said)
        + "\nIf that is what you want, name it:\n"
        + f"  {apply_command(job, found, named)}"
    )


def apply_command(job: Job, plan: SavedPlan, named: Iterable[str] = ()) -> str:
    """The command that applies ``plan``, with an option for each resource that must be named: the names that
    the user gave if they cover it, else its address."""
    given = (*plan.named, *named)
    names = [
        next(
            (one for one in given if destruction.covers([one], lost.address)),
            _to_name(job, [lost.address])[0],
        )
        for lost in plan.protected
    ]
    return " ".join(filter(None, ("invoke apply", job.named, destroying(names))))


def destroying(addresses: Iterable[str]) -> str:
    """The options that name these addresses."""
    return " ".join(f"--destroy {shlex.quote(address)}" for address in dict.fromkeys(addresses))


def _rescue(folders: Folders, root: Path, problem: TerraformError) -> None:
    """Keep the state that Terraform could not store: it is in Terraform's working folder, which may be
    temporary."""
    left = root / "errored.tfstate"
    if not left.exists():
        return
    kept = folders.state / "errored.tfstate"
    left.replace(kept)
    push = f"TF_DATA_DIR={folders.data} terraform -chdir={folders.root} state push {kept}"
    problem.args = (
        f"{problem}\nTerraform could not store the state; it is in {kept}. Once it can be:\n  {push}",
    )


def _explain_half_done(job: Job, plan: SavedPlan, problem: TerraformError) -> None:
    now = saved_plan.state_position(job.folders)
    if now is not None and now == plan.state:
        return  # nothing was changed, and the plan is still valid
    saved_plan.discard(job.folders)
    again = f"`{saved_plan.again(plan.kind)} {job.named}`"
    problem.args = (f"{problem}\nWhat was done so far is in the state; {again} shows what is left to do.",)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
