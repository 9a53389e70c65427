"""From a name to a meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.commands.environment import Environment, find, keep_lock, load_project
from infra.commands.provenance import origins
from infra.drive.build_folders import Folders
from infra.drive.last_applied import remember
from infra.errors import DriveError, SpecError, UsageError, dotted, undotted
from infra.load import load

ROOT = Path(__file__).parents[2]
SPEC = """\
version: 1
name: lab
domain: lab.internal
supernet: 10.0.0.0/12
sites:
  us-west-2: {kind: aws}
images:
  cpu: {ubuntu: 24.04}
pools:
  cpu: {image: cpu, instance_types: [m6i.xlarge], market: spot, regions: {us-west-2: {max: 4}}}
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "lab.yaml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INFRA_ENV", raising=False)
    return tmp_path


def test_the_default_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFRA_ENV", "lab")
    assert find().name == "lab"


@pytest.mark.parametrize(
    "name", ["lba", "environments/lab.yaml", "lab.yaml", "lab.lock", "../environments/lab", "lab.rehearsal"]
)
def test_a_name_that_is_nearly_right(project: Path, name: str) -> None:
    (project / "environments" / "lab.lock.yaml").touch()
    (project / "environments" / "lab.rehearsal.yaml").touch()
    with pytest.raises(UsageError, match=r"mean lab\?"):
        find(name)


def test_what_others_start_from_is_not_offered(project: Path) -> None:
    (project / "environments" / "common.yaml").write_text("owner: ada\n", encoding="utf-8")
    (project / "environments" / "big.yaml").write_text("extends: lab.yaml\n", encoding="utf-8")
    (project / "environments" / "lab.yaml").write_text(f"extends: common.yaml\n{SPEC}", encoding="utf-8")
    (project / "environments" / "torn.yaml").write_text("name: [", encoding="utf-8")
    with pytest.raises(UsageError, match=r"\bbig, lab and torn$"):
        find("zzzzzzzz")


def test_another_folder_is_not_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project / "environments")
    with pytest.raises(UsageError, match="environments/"):
        find("lab")


def test_a_lock_file_that_somebody_else_wrote_meanwhile_is_kept(project: Path) -> None:
    loaded = load_project(find("lab"))
    lock = project / "environments" / "lab.lock.yaml"
    lock.write_text("version: 1\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"lab\.lock\.yaml"):
        keep_lock(loaded)
    assert lock.read_text(encoding="utf-8") == "version: 1\n"


def test_a_damaged_memory_of_the_last_apply_is_told(project: Path) -> None:
    folders = Folders(project / "build" / "lab")
    remember(folders, {}, {"spec": load_project(find("lab")).meaning})
    assert load_project(find("lab")).changes == ()
    for left in ("{", "[]", "{}", '{"spec": "{"}', '{"spec": 1}'):
        (folders.applied / "applied.json").write_text(left, encoding="utf-8")
        with pytest.raises(DriveError, match=r"applied\.json"):
            load_project(find("lab"))


def test_nothing_is_written_until_it_is_asked_for(project: Path) -> None:
    loaded = load_project(find("lab"))
    assert not (project / "environments" / "lab.lock.yaml").exists()
    assert keep_lock(loaded)
    text = (project / "environments" / "lab.lock.yaml").read_text(encoding="utf-8")
    assert "sites/us-west-2" in text
    again = load_project(find("lab"))
    assert again.lock == text
    assert not keep_lock(again)


def test_a_rehearsal_leaves_no_trace_in_the_lock(project: Path) -> None:
    assert not keep_lock(load_project(find("lab", rehearsed=True)))
    assert not (project / "environments" / "lab.lock.yaml").exists()
    assert Environment("lab", True).build != Environment("lab").build


def test_comments_and_order_have_no_meaning(project: Path) -> None:
    before = load_project(find("lab")).meaning
    path = project / "environments" / "lab.yaml"
    path.write_text(f"# a comment\n{SPEC}", encoding="utf-8")
    assert load_project(find("lab")).meaning == before
    path.write_text(SPEC.replace("max: 4", "max: 5"), encoding="utf-8")
    assert load_project(find("lab")).meaning != before


def test_what_resolve_refuses_is_told_with_its_place(project: Path) -> None:
    keep_lock(load_project(find("lab")))
    lock = project / "environments" / "lab.lock.yaml"
    text = lock.read_text(encoding="utf-8")
    block = next(line.split(": ")[1] for line in text.splitlines() if line.startswith("  sites/us-west-2: "))
    lock.write_text(
        text.replace(f"sites/us-west-2: {block}", "sites/us-west-2: 10.200.0.0/16"), encoding="utf-8"
    )
    with pytest.raises(SpecError) as caught:
        load_project(find("lab"))
    assert caught.value.problems
    assert all(problem.position and problem.position.line for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("text", "line"),
    [(b"version: 1\nblocks: [}", 2), (b"version: 1\nblocks: \xff\xfe\n", 2)],
    ids=["no YAML", "no text"],
)
def test_a_lock_that_cannot_be_read_is_told(project: Path, text: bytes, line: int) -> None:
    (project / "environments" / "lab.lock.yaml").write_bytes(text)
    with pytest.raises(SpecError, match=rf"lab\.lock\.yaml:{line}"):
        load_project(find("lab"))


@pytest.mark.parametrize(
    "path",
    [("a",), ("pools", "gpu", "instance_types", 0), ("dns", "records", "a.b"), ("x", 3, "y z", "w")],
)
def test_a_path_survives_being_written(path: tuple[str | int, ...]) -> None:
    assert undotted(dotted(path)) == path


def test_each_value_says_where_it_comes_from_as_a_person_would_spell_it() -> None:
    values = {dotted(value.path): value for value in origins(load(Path("environments/lab.yaml")))}
    assert str(values["domain"].position) == "environments/lab.yaml:3"
    assert values["network.routing"].position is None
    assert "pools.cpu.market.kind" not in values
    spelled = {
        "pools.cpu.market": "spot",
        "pools.cpu.regions.us-west-2.min": "0",
        "images.cpu.root_disk": "40 GiB",
        "pools.cpu.drain_timeout": "15m",
        "pools.cpu.efa": "false",
    }
    assert {path: values[path].value for path in spelled} == spelled


def test_inherited_values_name_the_file_they_stand_in() -> None:
    found = {dotted(one.path): one for one in origins(load(ROOT / "environments" / "research.yaml"))}
    lines = (ROOT / "environments" / "base.yaml").read_text(encoding="utf-8").splitlines()
    [line] = [number for number, text in enumerate(lines, 1) if text.startswith("    engineers:")]
    assert str(found["access.groups.engineers.gid"].position).endswith(f"environments/base.yaml:{line}")
