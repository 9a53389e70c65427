"""Real Terraform, from the first plan to the last destroy."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from drive.applying import apply_saved, in_state

from infra.drive import last_applied, lifecycle, saved_plan
from infra.drive.engine import Engine
from infra.drive.lifecycle import Job
from infra.drive.state_backends import LocalPlace
from infra.drive.terraform import Silence, StoppedError, Terraform, TerraformError
from infra.errors import ProtectedError, StalePlanError, ToolError, UsageError

MakeJob: TypeAlias = Callable[..., Job]


def test_from_first_plan_to_destroy(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job()
    planned = lifecycle.plan(job)
    assert [one.address for one in planned.plan.changes] == [
        "module.us_west_2.terraform_data.kept",
        'module.us_west_2.terraform_data.thing["a.b"]',
        'module.us_west_2.terraform_data.thing["c"]',
    ]
    assert {one.site for one in planned.plan.changes} == {"us-west-2"}
    assert planned.saved.counts["create"] == 3

    apply_saved(job)
    assert saved_plan.load(job.folders) is None
    assert lifecycle.outputs(job) == {"text": "one"}
    remembered = last_applied.recall(job.folders)
    assert remembered is not None
    assert remembered.files == job.files
    assert remembered.about["spec"] == "spec"

    monkeypatch.setenv("TF_WORKSPACE", "elsewhere")  # another workspace is not another state
    again = lifecycle.plan(job)
    assert not again.plan.has_changes
    apply_saved(job)  # an empty plan is as good as any

    changed = lifecycle.plan(make_job(text="two"))
    assert [(one.action, one.address) for one in changed.plan.changes] == [
        ("update", 'module.us_west_2.terraform_data.thing["a.b"]'),
        ("update", 'module.us_west_2.terraform_data.thing["c"]'),
    ]
    (attribute,) = (one for one in changed.plan.changes[0].attributes if one.path == "input")
    assert (attribute.before, attribute.after) == ("one", "two")
    drift = lifecycle.drift(make_job(text="two"))
    assert (drift.changes, drift.exit_code) == ((), 0)
    assert saved_plan.load(job.folders) == changed.saved

    job = make_job()
    lifecycle.plan(job, destroy=True)
    apply_saved(job)
    assert in_state(job) == []
    assert last_applied.recall(job.folders) is None


def test_a_stored_state_is_read_without_terraform_where_that_tells_the_same(make_job: MakeJob) -> None:
    """What is not in it is forgotten, so a folder that does not know its backend yet asks Terraform."""
    job = make_job()
    assert lifecycle.stored(job) == {}
    lifecycle.plan(job)
    apply_saved(job)
    state = job.terraform().pull()
    assert state["resources"]

    without = dataclasses.replace(job, engine=Engine("terraform", "1.11.4", ("/bin/false",)))
    assert lifecycle.stored(without) == state

    shutil.rmtree(job.folders.data)
    with pytest.raises(ToolError):
        lifecycle.stored(without)
    assert lifecycle.stored(job) == state
    # A file that was left where the state once was says nothing of one that is kept elsewhere.
    with pytest.raises(ToolError):
        lifecycle.stored(dataclasses.replace(without, place=LocalPlace(job.folders)))


def test_a_plan_is_for_its_files_spec_engine_and_state_and_serves_once(make_job: MakeJob) -> None:
    job = make_job()
    assert lifecycle.outputs(job) == {}
    saved = lifecycle.plan(job).saved
    with pytest.raises(StalePlanError, match="rendered files"):
        apply_saved(make_job(text="two"))
    with pytest.raises(StalePlanError, match="spec"):
        apply_saved(make_job(spec="another"))
    newer = dataclasses.replace(job.engine, version="99.0.0")
    with pytest.raises(StalePlanError, match=r"99\.0\.0"):
        apply_saved(dataclasses.replace(job, engine=newer))
    apply_saved(make_job())  # and the plan itself has not suffered
    with pytest.raises(StalePlanError):
        lifecycle.apply(job, saved)

    lifecycle.plan(job)
    file = job.folders.state / "terraform.tfstate"
    state = json.loads(file.read_text())
    for change, fact in (({"lineage": "another"}, "different"), ({"serial": state["serial"] + 1}, "serial")):
        file.write_text(json.dumps(state | change))
        with pytest.raises(StalePlanError, match=fact):
            apply_saved(job)
    file.write_text(json.dumps(state))
    saved_plan.plan_file(job.folders).write_bytes(b"another")
    with pytest.raises(StalePlanError, match=str(saved_plan.plan_file(job.folders))):
        apply_saved(job)


def test_terraform_itself_finds_a_stale_plan(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    # As with a state in S3, whose position is not looked up.
    monkeypatch.setattr(saved_plan, "state_position", lambda _folders: None)
    job = make_job()
    lifecycle.plan(job)
    terraform = job.terraform()
    terraform.plan(job.build / "elsewhere")
    terraform.apply(job.build / "elsewhere")
    with pytest.raises(StalePlanError, match="state"):
        apply_saved(job)
    assert saved_plan.load(job.folders) is None


def test_guarded_thing_is_destroyed_only_by_name(make_job: MakeJob) -> None:
    job = make_job()
    lifecycle.plan(job)
    apply_saved(job)
    kept = "module.us_west_2.terraform_data.kept"

    job = make_job(kept="second")
    with pytest.raises(ProtectedError, match=f"invoke plan --env lab --destroy {kept}"):
        lifecycle.plan(job)

    planned = lifecycle.plan(job, named=[kept])
    (change,) = (one for one in planned.plan.changes if one.action == "replace")
    assert change.address == kept
    assert [one.path for one in change.attributes if one.replaces] == ["triggers_replace"]
    assert "prevent_destroy = true" in (job.folders.root / "modules/site/main.tf").read_text()

    with pytest.raises(ProtectedError, match=f"invoke apply --env lab --destroy {kept}"):
        apply_saved(job)
    apply_saved(job, named=["module.us_west_2"])
    assert not job.folders.unprotected.exists()
    assert not lifecycle.plan(job).plan.has_changes


def test_naming_one_thing_does_not_open_the_door_to_another(make_job: MakeJob) -> None:
    other = """
resource "terraform_data" "other" {
  triggers_replace = var.kept
  lifecycle {
    prevent_destroy = true
  }
}
"""
    lifecycle.plan(make_job(more=other))
    apply_saved(make_job(more=other))
    job = make_job(more=other, kept="second")
    kept = "module.us_west_2.terraform_data.kept"
    planned = lifecycle.plan(job, named=[kept])
    assert {one.address for one in planned.plan.protected} == {kept, kept.replace("kept", "other")}
    with pytest.raises(ProtectedError, match=r"module\.us_west_2\.terraform_data\.other"):
        apply_saved(job, named=[kept])


def test_a_site_or_folder_that_does_not_exist_is_named(make_job: MakeJob) -> None:
    job = make_job()
    with pytest.raises(UsageError, match=r"'mars'.* us-west-2"):
        lifecycle.plan(job, only=["mars"])
    with pytest.raises(UsageError, match="us-west-2\\?"):
        lifecycle.plan(job, only=["us-west2"])
    with pytest.raises(UsageError, match="/nowhere"):
        lifecycle.plan(job, out=job.build / "nowhere" / "mine.tfplan")
    assert saved_plan.load(job.folders) is None
    assert len(lifecycle.plan(job, only=["us-west-2"]).plan.changes) == 3


def test_apply_that_fails_half_way_keeps_what_was_done(make_job: MakeJob) -> None:
    fails = """
resource "terraform_data" "fails" {
  input      = terraform_data.thing["c"].id
  provisioner "local-exec" {
    command = "test -e ${path.root}/../may_work"
  }
}
"""
    job = make_job(more=fails)
    lifecycle.plan(job)
    with pytest.raises(TerraformError) as caught:
        apply_saved(job)
    assert "module.us_west_2.terraform_data.fails: " in str(caught.value)
    assert "`invoke plan --env lab`" in str(caught.value)
    assert saved_plan.load(job.folders) is None
    assert 'module.us_west_2.terraform_data.thing["c"]' in in_state(job)
    assert last_applied.recall(job.folders) is None

    (job.build / "may_work").touch()
    left = lifecycle.plan(job)
    assert [(one.action, one.address) for one in left.plan.changes] == [
        ("replace", "module.us_west_2.terraform_data.fails"),
    ]
    assert "tainted" in left.plan.changes[0].reason
    apply_saved(job)
    assert not lifecycle.plan(job).plan.has_changes


class Impatient(Silence):
    """Presses Ctrl-C as soon as the slow resource is under way."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def event(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "provision_start":
            os.kill(os.getpid(), signal.SIGINT)

    def interrupted(self, times: int) -> None:
        self.told.append(times)


def test_ctrl_c_during_apply_keeps_the_state(make_job: MakeJob) -> None:
    slow = """
resource "terraform_data" "slow" {
  input = terraform_data.thing["c"].id
  provisioner "local-exec" {
    command = "sleep 60"
  }
}
"""
    job = make_job(more=slow)
    lifecycle.plan(job)
    listener = Impatient()
    with pytest.raises(StoppedError, match="stopped") as caught:
        apply_saved(job, listener=listener)
    assert caught.value.exit_code == 130
    assert listener.told == [1]
    assert saved_plan.load(job.folders) is None
    assert "module.us_west_2.terraform_data.slow" in in_state(job)
    quick = make_job(more=slow.replace("sleep 60", "true"))
    lifecycle.plan(quick)
    apply_saved(quick)
    assert not lifecycle.plan(quick).plan.has_changes


class Late(Silence):
    """Presses Ctrl-C once the program is under way."""

    def __init__(self, ready: Path) -> None:
        self.ready = ready

    def beat(self) -> None:
        if self.ready.exists():
            self.ready.unlink()
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_that_comes_too_late_is_heard_all_the_same(tmp_path: Path) -> None:
    """A program that goes on to its good end: what is planned must not be applied, what is applied is."""
    program = tmp_path / "terraform"
    program.write_text("#!/bin/sh\ntrap 'echo {}; exit 0' INT\ntouch ready\nwhile :; do sleep 0.05; done\n")
    program.chmod(0o755)
    engine = Engine("terraform", "1.11.4", (str(program),))
    terraform = Terraform(engine, tmp_path, listener=Late(tmp_path / "ready"))
    with pytest.raises(StoppedError, match="show was stopped"):
        terraform.show(tmp_path / "plan")
    assert terraform.apply(tmp_path / "plan").exit_code == 0


def test_init_runs_again_only_when_it_must(make_job: MakeJob) -> None:
    job = make_job()
    terraform = job.terraform()
    assert terraform.init()
    assert not terraform.init()
    assert not make_job(text="two").terraform().init()

    # A module that is new in the root.
    main = job.folders.root / "main.tf"
    more = 'module "more" {\n  source = "./modules/site"\n  text = "x"\n  kept = "x"\n}\n'
    main.write_text(main.read_text() + more)
    assert terraform.init()
    assert not terraform.init()

    # What init had prepared is gone: Terraform says so, and is heard.
    (job.folders.data / "modules/modules.json").unlink()
    assert terraform.plan(job.build / "out").has_changes


def test_state_lock_of_somebody_else_is_explained(make_job: MakeJob) -> None:
    slow = (
        'resource "terraform_data" "slow" {\n  provisioner "local-exec" {\n    command = "sleep 3"\n  }\n}\n'
    )
    job = make_job(more=slow)
    lifecycle.plan(job)
    terraform = job.terraform()
    terraform.plan(job.build / "mine")
    said: list[str] = []

    class Rival(Silence):
        def event(self, event: Mapping[str, Any]) -> None:
            if event["type"] == "provision_start":
                try:
                    terraform.plan(job.build / "theirs")
                except TerraformError as problem:
                    said.append(str(problem))

    apply_saved(job, listener=Rival())
    (text,) = said
    assert "OperationTypeApply" in text
    assert "force-unlock" in text


def test_errors_name_file_line_and_address(make_job: MakeJob) -> None:
    job = make_job(more='resource "terraform_data" "bad" {\n  nonsense = 1\n}\n')
    with pytest.raises(TerraformError) as caught:
        lifecycle.plan(job)
    line = (job.folders.root / "modules/site/main.tf").read_text().splitlines().index("  nonsense = 1") + 1
    assert f"modules/site/main.tf:{line}: " in str(caught.value)


def test_a_copy_of_the_plan_goes_where_it_is_asked_for(make_job: MakeJob) -> None:
    job = make_job()
    out = job.build / "mine.tfplan"
    planned = lifecycle.plan(job, out=out)
    assert planned.exit_code == 2
    assert out.read_bytes() == saved_plan.plan_file(job.folders).read_bytes()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600  # keys of tunnels may be in it


def test_only_the_plan_that_was_shown_is_applied(make_job: MakeJob) -> None:
    """While a person reads a plan, somebody else makes another one of the same files."""
    job = dataclasses.replace(make_job(), options="--env lab --rehearse")
    shown = lifecycle.plan(job, pending=True).saved
    assert lifecycle.waiting(job) is None  # it is not for a later `invoke apply`
    other = lifecycle.plan(job, destroy=True).saved
    with pytest.raises(StalePlanError, match="`invoke plan --env lab --rehearse`"):
        lifecycle.apply(job, shown)
    assert lifecycle.waiting(job) == other
