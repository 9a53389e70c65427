"""The wheel: it brings all that a lab's own repository needs, far from a checkout.

It is built by its build system and unpacked into an empty folder, with bytecode beside modules, as pip leaves
it; what it needs is from this environment. One test, of the area `terraform`, installs it with pip instead.
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

import causeway
import infra
from infra.drive import localaws
from infra.drive.extras import MOTO
from infra.errors import UsageError
from infra.shipped_files import ROOT

_PROGRAM = """
import runpy, sys
packages, *sys.argv = sys.argv[1:]
sys.path.insert(0, packages)
import infra
assert infra.__file__.startswith(packages)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def run(*words: str, folder: Path, packages: Path) -> str:
    """A Python of this environment to which the wheel comes first."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "INFRA_ENV")}
    command = [sys.executable, "-c", _PROGRAM, str(packages), *words]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(tree: Path, folder: Path) -> Path:
    words = [sys.executable, "-m", "uv", "build", "--wheel", "--quiet", "--out-dir", str(folder), str(tree)]
    subprocess.run(words, check=True)
    (wheel,) = folder.glob("causeway-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def packages(wheel: Path) -> Path:
    folder = wheel.parent
    ZipFile(wheel).extractall(folder / "packages")
    # As pip does: also what is Python among templates and cookbooks.
    compileall.compile_dir(folder / "packages", quiet=1)
    return folder / "packages"


@pytest.fixture(scope="module")
def lab(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repositories")
    run("infra", "new", "my-lab", folder=folder, packages=packages)
    return folder / "my-lab"


@pytest.mark.parametrize(("name", "project"), [("causeway", "."), ("causeway_client", "client")])
def test_the_packages_have_the_version_that_the_programs_say(
    name: str, project: str, packages: Path, tmp_path: Path
) -> None:
    said = {"causeway": infra.__version__, "causeway_client": causeway.__version__}
    if name == "causeway":
        folder = packages.parent
    else:
        folder = tmp_path
        words = [sys.executable, "-m", "uv", "build", "--wheel", "--quiet", "--out-dir", str(folder)]
        subprocess.run([*words, str(ROOT / project)], check=True)
    (wheel,) = folder.glob(f"{name}-*.whl")
    assert wheel.name.split("-")[1] == said[name]
    assert len(set(said.values())) == 1  # one release of both


_WITHOUT_EXTRAS = "import sys; sys.modules |= {'moto': None, 'matplotlib': None}" + _PROGRAM


def without_extras(*words: str, folder: Path, packages: Path) -> subprocess.CompletedProcess[str]:
    """As it runs where no extra of the package is installed."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "INFRA_ENV")}
    command = [sys.executable, "-c", _WITHOUT_EXTRAS, str(packages), *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def rendered(folder: Path) -> dict[str, bytes]:
    build = folder / "build" / "my-lab"
    files = {path.relative_to(build): path for path in build.rglob("*") if path.is_file()}
    return {str(name): path.read_bytes() for name, path in files.items() if name.parts[0] != "state"}


def test_a_lab_renders_what_a_checkout_renders(lab: Path, packages: Path, tmp_path: Path) -> None:
    assert "is sound" in run("invoke", "validate", folder=lab, packages=packages)
    run("invoke", "render", folder=lab, packages=packages)
    (tmp_path / "environments").mkdir()
    (tmp_path / "tasks.py").symlink_to(ROOT / "tasks.py")
    for name in ("my-lab.yaml", "my-lab.lock.yaml"):
        if (lab / "environments" / name).exists():
            (tmp_path / "environments" / name).write_bytes((lab / "environments" / name).read_bytes())
    subprocess.run([sys.executable, "-m", "invoke", "render"], cwd=tmp_path, check=True, capture_output=True)
    ours, theirs = rendered(lab), rendered(tmp_path)
    assert any(path.endswith(".tf") for path in ours)
    assert ours == theirs


def test_what_the_first_spec_has_in_comments_is_sound(lab: Path, packages: Path, tmp_path: Path) -> None:
    """Also all of it together, as somebody has it who takes the comments' marks away."""
    written = (lab / "environments/my-lab.yaml").read_text()
    spec, parts = re.subn(r"(?m)^  # (?=  |\S+:)", "  ", written)
    assert parts > 5
    shutil.copytree(lab, tmp_path / "lab", ignore=shutil.ignore_patterns("build"))
    (tmp_path / "lab/environments/my-lab.yaml").write_text(spec)
    assert json.loads(run("invoke", "validate", "--json", folder=tmp_path / "lab", packages=packages)) == []
    resolved = run("invoke", "spec", folder=tmp_path / "lab", packages=packages)
    assert {*yaml.safe_load(resolved)["sites"]} == {"us-west-2", "rack"}


def test_a_lab_plans_and_has_cookbooks_and_scripts(lab: Path, packages: Path) -> None:
    said = run("invoke", "plan", folder=lab, packages=packages)
    assert "my-lab: " in said
    run("invoke", "local.down", folder=lab, packages=packages)
    shipped = packages / "infra" / "shipped"
    for path in (
        "packer/scripts/install-client.sh",
        "cookbooks/base/metadata.rb",
        "docs/iam/plan.json",
    ):
        assert (shipped / path).read_bytes() == (ROOT / path).read_bytes()


def test_a_newer_version_brings_its_files_and_leaves_the_labs(lab: Path, packages: Path) -> None:
    spec, pipeline = lab / "environments/my-lab.yaml", lab / "docs/ci/github-bake.yml"
    spec.write_text(spec.read_text() + "# ours\n")
    (lab / "README.md").write_text("# ours\n")
    pipeline.write_text("old\n")
    said = run("infra", "new", ".", folder=lab, packages=packages)
    assert said.split() == ["wrote", "docs/ci/github-bake.yml"]
    assert spec.read_text().endswith("# ours\n")
    assert (lab / "README.md").read_text() == "# ours\n"
    assert pipeline.read_text() != "old\n"
    assert "everything" in run("infra", "new", ".", folder=lab, packages=packages).lower()


@pytest.mark.parametrize(("edit", "accepted"), [("# ours\n", True), ("poools: {}\n", False)])
def test_a_commit_is_refused_where_its_spec_is(
    edit: str, accepted: bool, lab: Path, packages: Path, tmp_path: Path
) -> None:
    """The hook, as pre-commit runs it, after an edit of a file that the environment extends."""
    ((hook,),) = (
        each["hooks"] for each in yaml.safe_load((lab / ".pre-commit-config.yaml").read_text())["repos"]
    )
    shutil.copytree(lab, tmp_path / "clone")
    program = tmp_path / "clone/.venv/bin/invoke"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv[1:1] = [{str(packages)!r}, 'invoke']\n{_PROGRAM}"
    )
    program.chmod(0o755)
    environments = tmp_path / "clone/environments"
    spec = environments / "my-lab.yaml"
    (environments / "shared").mkdir()
    (environments / "shared/base.yaml").write_text(f"version: 1\n{edit}")
    spec.write_text(spec.read_text().replace("version: 1\n", "version: 1\nextends: shared/base.yaml\n", 1))
    (environments / "my-lab.lock.yaml").touch()
    assert re.search(hook["files"], "environments/shared/base.yaml")
    assert not hook["pass_filenames"]
    done = subprocess.run(shlex.split(hook["entry"]), cwd=tmp_path / "clone", check=False)
    assert (done.returncode == 0) is accepted


@pytest.mark.parametrize("words", [["validate"], ["render"]])
def test_most_of_it_needs_no_extra(words: list[str], lab: Path, packages: Path) -> None:
    done = without_extras("invoke", *words, folder=lab, packages=packages)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [(["plan"], "local"), (["local.up"], "local"), (["autoscaler.simulate", "--plot", "week.svg"], "plots")],
)
def test_what_needs_an_extra_names_it(words: list[str], extra: str, lab: Path, packages: Path) -> None:
    done = without_extras("invoke", *words, folder=lab, packages=packages)
    assert done.returncode == 1
    assert f"pip install 'causeway[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_pinned_moto_is_the_one_that_is_changed() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][
        "local"
    ]
    assert declared == [f"moto[ec2,s3,server]>={MOTO},<{MOTO.split('.')[0]}.{int(MOTO.split('.')[1]) + 1}"]


def test_another_moto_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "moto-5.9.0.dist-info").mkdir()
    (tmp_path / "moto-5.9.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: moto\nVersion: 5.9.0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=r"5\.9\.0"):
        localaws.start(tmp_path / "aws", "lab")


class Environment:
    """A virtual environment. pip finds what a wheel needs in this test's own packages, and asks no index."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        # Their own .pth files, of which one names this checkout, are not read.
        (packages / "of_the_test.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def __call__(self, *words: str, folder: Path, code: int = 0) -> str:
        """A program of it, or one of the system that starts them."""
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "INFRA_ENV")}
        env |= {"PATH": f"{self.bin}:{os.environ['PATH']}", "PIP_NO_INDEX": "1"}
        done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def version(self) -> str:
        """Of the installed Causeway, which is not this checkout."""
        program = "import infra, importlib.metadata as m; print(infra.__file__, m.version('causeway'))"
        file, version = self(str(self.bin / "python"), "-c", program, folder=self.bin).split()
        assert file.startswith(str(self.bin.parent))
        return version


OLDER = "0.0.1"


@pytest.fixture(scope="module")
def older_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the same tree, with a lower version."""
    folder = tmp_path_factory.mktemp("older")
    for name in ("README.md", "LICENSE", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    for name in ("infra", "cookbooks", "packer", "templates", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".site"))
    declared = folder / "infra" / "__init__.py"
    older, times = re.subn(
        r'(?m)^__version__ = ".*"$', f'__version__ = "{OLDER}"', declared.read_text(encoding="utf-8")
    )
    assert times == 1
    declared.write_text(older, encoding="utf-8")
    return built(folder, folder / "dist")


@pytest.mark.timeout(1200)
def test_a_lab_is_made_applied_and_upgraded(older_wheel: Path, wheel: Path, tmp_path: Path) -> None:
    first = Environment(tmp_path / "first")
    first("pip", "install", "--quiet", f"causeway[local] @ {older_wheel.as_uri()}", folder=tmp_path)
    first("python", "-m", "infra", "new", "my-lab", folder=tmp_path)
    lab = tmp_path / "my-lab"
    environment = Environment(lab / ".venv")
    environment("make", "install", folder=lab)
    assert environment.version() == OLDER
    try:
        environment("python", "-m", "invoke", "plan", "--detailed-exitcode", folder=lab, code=2)
        environment("python", "-m", "invoke", "apply", folder=lab)
        assert changes(environment, lab) == []
        lock = (lab / "environments/my-lab.lock.yaml").read_bytes()

        requirements = lab / "requirements.txt"
        requirements.write_text(requirements.read_text().replace(older_wheel.as_uri(), wheel.as_uri()))
        environment("make", "install", folder=lab)
        assert environment.version() not in ("", OLDER)
        assert wheel.name.startswith(f"causeway-{environment.version()}-")
        environment("python", "-m", "infra", "new", ".", folder=lab)
        assert (lab / "requirements.txt").read_text() == f"causeway[local] @ {wheel.as_uri()}\n"
        assert json.loads(environment("python", "-m", "invoke", "diff", "--json", folder=lab))["files"] == []
        assert changes(environment, lab) == []
        assert (lab / "environments/my-lab.lock.yaml").read_bytes() == lock
        environment("python", "-m", "invoke", "destroy", "--confirm", "my-lab", folder=lab)
    finally:
        environment("python", "-m", "invoke", "local.down", folder=lab)


def changes(environment: Environment, lab: Path) -> list[object]:
    """What a plan would do; none of it, where nothing has changed."""
    plan = json.loads(
        environment("python", "-m", "invoke", "plan", "--json", "--detailed-exitcode", folder=lab)
    )
    return [*plan["changes"], *plan["undeclared"]]
