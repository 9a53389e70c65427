"""What the documentation says, held against what there is: links, commands, examples, tables, permissions."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import yaml
from invoke.collection import Collection
from invoke.loader import FilesystemLoader

from benchmarks import run

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs/tutorial.md"
ENGINEER = ROOT / "docs/infra-engineer.md"
COMMANDS = ROOT / "docs/commands.md"
FIGURES = ROOT / "docs/figures.md"
ARCHITECTURE = ROOT / "docs/architecture.md"
TROUBLES = ROOT / "docs/troubleshooting.md"
IAM = ROOT / "docs/iam"

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
APPLY = sorted(IAM.glob("apply-*.json"))
PLAN = IAM / "plan.json"
BAKE = IAM / "bake.json"

MANAGED_POLICY = 6144
"""Characters of a managed policy without white space (IAM User Guide, "IAM and AWS STS quotas")."""
POLICIES_PER_ROLE = 10


def relative(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def fenced(page: Path, after: str) -> str:
    """The first fenced block after a text."""
    found = re.compile(re.escape(after) + r".*?^ *```\w*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE).search(
        page.read_text(encoding="utf-8")
    )
    assert found, f"{relative(page)} has no block after {after!r}"
    return found[1]


# -- Links and paths --------------------------------------------------------------------------------------

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
PATH = re.compile(
    r"`((?:infra|templates|tests|environments|docs|benchmarks|cookbooks|packer|client)/[\w./-]+)`"
)


def prose(page: Path) -> str:
    """A page without its fenced blocks: what is in them is no Markdown."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings, and those set by hand."""
    found = {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).lower().replace(" ", "-")
        for heading in HEADING.findall(prose(page))
    }
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{relative(page)}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{relative(page)}: {link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_files_that_are_named_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return  # it speaks of what was, too
    missing = [path for path in PATH.findall(page.read_text(encoding="utf-8")) if not (ROOT / path).exists()]
    assert [path for path in missing if not is_example(path)] == []


def is_example(path: str) -> bool:
    """Files that a reader makes: those of environments that do not ship, and the site."""
    return path.startswith(("environments/lab.", "environments/mine.", "environments/broken.", "docs/.site/"))


def test_every_decision_is_listed_and_has_the_parts_of_the_template() -> None:
    folder = ROOT / "docs/adr"
    records = sorted(path for path in folder.glob("[0-9]*.md") if not path.name.startswith("0000"))
    listed = re.findall(r"\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert [path.name for path in records] == [name for name in listed if not name.startswith("0000")]
    parts = HEADING.findall((folder / "0000-template.md").read_text(encoding="utf-8"))[1:]
    allowed = (parts, [part for part in parts if part != "Alternatives"])
    for path in records:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {path.name[:4]}: "), path.name
        assert HEADING.findall(text)[1:] in allowed, path.name
        assert re.search(r"^20\d\d-\d\d · (accepted|replaced by \d{4})$", text, re.MULTILINE), path.name


# -- Commands ---------------------------------------------------------------------------------------------

COMMAND = re.compile(r"\binvoke ([a-z]+(?:\.[a-z-]+)?)((?: --[a-z-]+(?: [^\s`|;,.:()\-][^\s`|;,]*)?)*)")


@cache
def namespace() -> Collection:
    module, _ = FilesystemLoader(start=str(ROOT)).load("tasks")
    found: Collection = module.namespace
    return found


@cache
def flags() -> Mapping[str, frozenset[str]]:
    """Task → its options, also by other names: `images` is `images.list`."""
    return {
        str(name): frozenset(context.flags)
        for context in namespace().to_contexts()
        for name in (context.name, *context.aliases)
    }


def test_the_tasks_table_is_what_invoke_lists(request: pytest.FixtureRequest) -> None:
    page = COMMANDS.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `invoke (\w[\w.-]*)` \| (.+) \|$", page, re.MULTILINE)
    tasks = {
        name: (namespace()[name].__doc__ or "").strip().splitlines()[0] for name in namespace().task_names
    }
    if dict(rows) != tasks and request.config.getoption("--update-golden"):
        order = [name for name, _ in rows if name in tasks]
        order += [name for name in tasks if name not in order]
        head = page[: page.index("| `invoke ")]
        COMMANDS.write_text(
            head + "".join(f"| `invoke {name}` | {tasks[name]} |\n" for name in order), "utf-8"
        )
    assert dict(rows) == tasks, "'pytest tests/test_docs.py --update-golden' rewrites the table"


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_commands_exist_with_their_options(page: Path) -> None:
    text = re.sub(r"\s+", " ", page.read_text(encoding="utf-8"))
    for task, options in COMMAND.findall(text):
        assert task in flags(), f"{relative(page)}: there is no `invoke {task}`"
        unknown = set(re.findall(r"--[a-z-]+", options)) - flags()[task]
        assert not unknown, f"{relative(page)}: `invoke {task}` has no {', '.join(sorted(unknown))}"


def test_every_task_but_those_that_are_named_takes_an_environment() -> None:
    without = {name for name, known in flags().items() if "--env" not in known}
    assert without == {"new", "schema", "docs", "bench"}


# -- Examples ---------------------------------------------------------------------------------------------


def test_the_ten_line_spec_is_the_one_that_ships() -> None:
    shipped = (ROOT / "environments/minimal.yaml").read_text(encoding="utf-8")
    assert fenced(TUTORIAL, "`environments/minimal.yaml`") == shipped
    assert len(shipped.splitlines()) == 10


def test_the_broken_spec_gets_the_errors_that_are_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    from infra.commands import show
    from infra.commands.environment import find

    (tmp_path / "environments").mkdir()
    spec = fenced(TUTORIAL, "<!-- broken:spec -->")
    (tmp_path / "environments/broken.yaml").write_text(spec, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert show.validate(find("broken"), json=False) == 1
    captured = capsys.readouterr()
    said, shown = captured.err + captured.out, fenced(TUTORIAL, "<!-- broken:output -->")
    if said != shown and request.config.getoption("--update-golden"):
        TUTORIAL.write_text(TUTORIAL.read_text("utf-8").replace(shown, said), encoding="utf-8")
    assert said == shown, "'pytest tests/test_docs.py --update-golden' rewrites the example"


def test_the_lock_file_is_shown_as_it_is() -> None:
    shown = fenced(ENGINEER, "kept the same way.").splitlines()
    lock = (ROOT / "environments/minimal.lock.yaml").read_text(encoding="utf-8").splitlines()
    assert [line for line in shown if line not in lock] == []


def test_the_real_account_s_example_is_a_sound_spec(tmp_path: Path) -> None:
    from infra.load import load

    minimal = (ROOT / "environments/minimal.yaml").read_text(encoding="utf-8")
    example = fenced(ENGINEER, "where the Terraform state is kept")
    spec = tmp_path / "lab.yaml"
    spec.write_text(minimal + re.sub(r"^ {3}", "", example, flags=re.MULTILINE), encoding="utf-8")
    assert load(spec).spec.aws.account == "123456789012"


def test_the_training_program_prints_what_is_shown(tmp_path: Path) -> None:
    project = tmp_path / "my-project"
    project.mkdir()
    (project / "train.py").write_text(fenced(TUTORIAL, "<!-- tutorial:train -->"), encoding="utf-8")
    command = [sys.executable, "-m", "causeway", "run", "--local", "--", sys.executable, "train.py"]
    home = {
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PYTHONPATH": str(ROOT / "client"),
    }
    ran = subprocess.run(
        command, cwd=project, env={**os.environ, **home}, capture_output=True, text=True, check=True
    )
    assert fenced(TUTORIAL, "<!-- tutorial:output -->") in ran.stdout + ran.stderr
    (model,) = tmp_path.rglob("model.json")
    assert json.loads(model.read_text("utf-8"))["workers"] == 1


def definitions(code: ast.AST, within: str = "") -> Iterator[str]:
    """Functions and classes of a module, those of a class as ``Class.function``."""
    for node in ast.iter_child_nodes(code):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield within + node.name
            yield from definitions(node, f"{within}{node.name}.")


def test_the_walks_name_what_exists() -> None:
    """Each function in its module, or in a module of the package that is named."""
    text = re.sub(r"\s+", " ", ARCHITECTURE.read_text("utf-8"))
    named = re.findall(r"`([\w.]+)` (?:\(|in )`(infra/[\w/]+(?:\.py)?)`", text)
    assert len(named) > 40

    def defined(place: Path) -> set[str]:
        modules = [place] if place.suffix else place.rglob("*.py")
        return {name for path in modules for name in definitions(ast.parse(path.read_text("utf-8")))}

    assert [f"{place}: {name}" for name, place in named if name not in defined(ROOT / place)] == []


def test_the_walks_lead_from_the_specs_to_the_files(tmp_path: Path) -> None:
    from infra.load import load
    from infra.model import Outputs
    from infra.render import render
    from infra.resolve.cluster import resolve
    from infra.resolve.lockfile import Lock

    pool, site = (fenced(ARCHITECTURE, f"<!-- walk:{walk} -->") for walk in ("pool", "tunnel"))
    images = "images: {gpu: {ubuntu: 24.04, gpu: {driver: 580}}}\n"
    (tmp_path / "minimal.yaml").write_text((ROOT / "environments/minimal.yaml").read_text("utf-8"), "utf-8")
    (tmp_path / "lab.yaml").write_text("extends: minimal.yaml\n" + images + pool + site, "utf-8")
    cluster, _ = resolve(load(tmp_path / "lab.yaml").spec, Lock(), "lab")
    values = json.loads(render(cluster)["terraform/terraform.tfvars.json"])["regions"]["us_west_2"]
    assert values["node_pools"]["gpu"]["instance_types"][0]["name"] == "g5.xlarge"
    assert list(values["vpn"]["connections"]) == ["rack-a-us-west-2"]
    outside = (IPv4Address("203.0.113.1"), IPv4Address("203.0.113.2"))
    files = render(cluster, Outputs(tunnels={"rack-a-us-west-2": outside}))
    connections = files["strongswan/rack-a/etc/swanctl/conf.d/site-gateway.conf"]
    assert re.findall(r"remote_addrs = (\S+)", connections) == [str(each) for each in outside]


def test_the_map_of_packages_has_the_layers_that_imports_keep() -> None:
    """Top to bottom as import-linter has them; those on one line are of one layer."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    (layers,) = (one["layers"] for one in tool["importlinter"]["contracts"] if "containers" in one)
    layer = {name: depth for depth, names in enumerate(layers) for name in names.split(" | ")}
    lines = fenced(ROOT / "CONTRIBUTING.md", "## Where things are").splitlines()
    rows = [
        {layer[name] for name in re.findall(r"infra/(\w+)", line)}
        for line in lines
        if "infra/" in line and "outside the data flow" not in line
    ]
    depths = [depth for (depth,) in rows]
    assert depths == sorted(depths)
    named = set(re.findall(r"infra/(\w+)", "\n".join(lines)))
    assert {each.parent.name for each in (ROOT / "infra").glob("*/__init__.py")} - named == set()


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for part in entry.values() if isinstance(entry, dict) else entry:
                yield from pages(part)

    nav = set(pages(tomllib.loads((ROOT / "docs/zensical.toml").read_text("utf-8"))["project"]["nav"]))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in PAGES if ROOT / "docs" in path.parents}
    assert {page for page in there - nav if not page.startswith("adr/0")} == set()
    assert nav - there == set()


def test_pictures_are_pictures() -> None:
    """An image that a page shows is a file of its kind, and each image is shown by a page."""
    shown = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", prose(page))
        if not re.match(r"[a-z]+:", link)
    }
    begins = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<svg"}
    assert shown
    for path in shown:
        assert begins[path.suffix] in path.read_bytes()[:1000], path
    assert set((ROOT / "docs").glob("*.[ps][nv]g")) <= shown


def test_links_of_the_site_stay_in_it() -> None:
    """The site has what is in ``docs/`` alone; other files of the repository are named, not linked."""
    outside = [
        f"{relative(page)}: {link}"
        for page in PAGES
        if ROOT / "docs" in page.parents
        for link in LINK.findall(prose(page))
        if not re.match(r"[a-z]+:", link)
        and not link.startswith("#")
        and ROOT / "docs" not in (page.parent / link.partition("#")[0]).resolve().parents
    ]
    assert outside == []


@pytest.mark.parametrize(
    "page", [ROOT / "docs/adding" / name for name in ("addon.md", "check.md", "pool-field.md")], ids=relative
)
def test_the_code_that_walkthroughs_quote_is_the_code(page: Path) -> None:
    code = " ".join(
        line.strip()
        for path in (ROOT / "infra").rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
    )
    quoted = re.findall(r"^ *```python\n(.*?)^ *```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert quoted
    for block in quoted:
        assert " ".join(line.strip() for line in block.splitlines()) in code, block


def test_renderers_take_what_the_walkthrough_says() -> None:
    from infra.render import RENDERERS

    (shown,) = ast.parse(textwrap.dedent(fenced(ROOT / "docs/adding/target.md", "1. **The renderer**"))).body
    assert isinstance(shown, ast.FunctionDef)
    for target in RENDERERS:
        parameters = inspect.signature(import_module(f"infra.render.{target}").render).parameters.values()
        assert [each.annotation for each in parameters] == [
            ast.unparse(each.annotation) for each in shown.args.args if each.annotation
        ], target


def test_the_python_of_pages_compiles() -> None:
    """``tests/client/test_frameworks.py`` runs that of docs/checkpoints.md."""
    pages = {path: re.findall(r"^```python\n(.*?)^```$", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)
             for path in sorted((ROOT / "docs").glob("*.md"))}  # fmt: skip
    assert len(pages[ROOT / "docs/checkpoints.md"]) == 5
    for path, blocks in pages.items():
        for block in blocks:
            compile(block, str(path), "exec")


def test_the_region_of_the_walkthrough_can_be_added_and_moves_nothing(tmp_path: Path) -> None:
    from infra.load import load
    from infra.resolve.cluster import resolve
    from infra.resolve.lockfile import parse

    (tmp_path / "minimal.yaml").write_text((ROOT / "environments/minimal.yaml").read_text("utf-8"), "utf-8")
    added = fenced(ROOT / "docs/adding/region.md", "let pools use it:")
    spec = tmp_path / "lab.yaml"
    spec.write_text("extends: minimal.yaml\n" + re.sub(r"^ {3}", "", added, flags=re.MULTILINE), "utf-8")
    lock = parse((ROOT / "environments/minimal.lock.yaml").read_text("utf-8"), "minimal.lock.yaml")
    cluster, grown = resolve(load(spec).spec, lock, "lab")
    assert [region.name for region in cluster.regions] == ["us-west-2", "eu-central-1"]
    assert {owner: grown.blocks[owner] for owner in lock.blocks} == lock.blocks


# -- The Kubernetes cluster -------------------------------------------------------------------------------

KUBERNETES = ROOT / "docs/kubernetes.md"


def rows(page: Path, after: str) -> list[str]:
    """The first cell of each row of the first table after a text."""
    table = re.search(re.escape(after) + r"\n(\|.*\n)\|[-| :]+\n((?:\|.*\n)+)", page.read_text("utf-8"))
    assert table, f"{relative(page)} has no table after {after!r}"
    return [line.split(" | ")[0].removeprefix("| ") for line in table[2].splitlines()]


def test_the_table_of_add_ons_names_each_with_what_it_is_by_default() -> None:
    from infra.catalogue import addons

    said = {
        name: "(off)" not in row
        for row in re.findall(
            r"^\| (`.+?`(?:, `.+?`)*(?: \(off\))?) \|", (ROOT / "docs/addons.md").read_text(), re.M
        )
        for name in re.findall(r"`([\w-]+)`", row)
    }
    known = {name: found.default for name in addons.names() if (found := addons.find(name))}
    assert said == known


def test_the_add_on_of_the_walkthrough_is_the_catalogues() -> None:
    shown = json.loads(fenced(ROOT / "docs/adding/addon.md", "below `charts` and `addons`:"))
    table = json.loads((ROOT / "infra/catalogue/addons.json").read_text("utf-8"))
    for part, named in shown.items():
        for name, row in named.items():
            assert table[part][name] == row


def test_the_parts_of_the_cluster_are_those_that_are_rendered() -> None:
    from infra.render.kubernetes import AFTER, APPLIED, READ

    lines = fenced(KUBERNETES, "<!-- kubernetes:parts -->").splitlines()[2:]
    first, second = (
        tuple(line.split()[0] for line in lines[start:] if line.startswith("    "))
        for start in (0, next(at for at, line in enumerate(lines) if line.startswith("  after/")))
    )
    assert second == AFTER
    assert first == (*APPLIED, *AFTER)
    assert {line.split("/")[0].strip() for line in lines if re.match(r"  \w+/", line)} == {*READ, "after"}


def test_labels_and_taints_of_nodes_are_told() -> None:
    from infra.load import load
    from infra.resolve.cluster import resolve
    from infra.resolve.lockfile import Lock

    spec = load(ROOT / "environments/research.yaml").spec
    cluster, _ = resolve(spec, Lock(), "research")
    racks = [node for site in cluster.sites for node in site.nodes]
    stated = {key for pool in spec.pools.values() for key in pool.labels}
    given = {key for pool in cluster.pools for group in pool.groups for key in group.labels}
    given |= {key for one in cluster.instances for key in one.labels} | {
        key for one in racks for key in one.labels
    }
    shared = {"nvidia.com/device-plugin.config", "nvidia.com/mig.config"}
    assert {name.strip("`") for name in rows(KUBERNETES, "<!-- kubernetes:labels -->")} == (
        given - stated
    ) | shared
    for taint in {taint for one in cluster.instances for taint in one.taints}:
        assert f"`{taint.key}:{taint.effect}`" in KUBERNETES.read_text("utf-8")


def texts_of(code: ast.AST) -> Iterator[str]:
    """The texts of a module, each whole, with `{}` for what is filled in."""
    for node in ast.walk(code):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def test_errors_that_are_explained_are_the_programs() -> None:
    code = " ".join(
        text
        for folder in ("infra", "client/causeway")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in texts_of(ast.parse(path.read_text("utf-8")))
    )
    explained = {
        row.strip("`")
        for part in re.findall(r"^(<!-- .+ -->)$", TROUBLES.read_text("utf-8"), re.MULTILINE)
        for row in rows(TROUBLES, part)
    }
    assert len(explained) > 50
    assert {text for text in explained if text not in code} == set()


def test_the_first_job_is_ten_lines_that_kubernetes_takes() -> None:
    import kubernetes_validate

    text = fenced(TUTORIAL, "ten lines in `job.yaml`:")
    assert len(text.splitlines()) == 10
    kubernetes_validate.validate(yaml.safe_load(text), "1.36", strict=True)


def test_the_place_for_figures_is_kept() -> None:
    _, _, after = FIGURES.read_text("utf-8").partition(run.BEGIN)
    assert run.END in after


# -- Permissions ------------------------------------------------------------------------------------------

READS = ("Describe", "Get", "List", "Search")

API = {
    "autoscaling": "autoscaling",
    "cloudfront": "cloudfront",
    "cloudwatch": "cloudwatch",
    "ec2": "ec2",
    "elasticfilesystem": "efs",
    "elasticloadbalancing": "elbv2",
    "iam": "iam",
    "kms": "kms",
    "logs": "logs",
    "rds": "rds",
    "route53": "route53",
    "s3": "s3",
    "servicequotas": "service-quotas",
    "sns": "sns",
    "ssm": "ssm",
    "sts": "sts",
}
"""A service in IAM → the same in botocore."""

CALLS = {
    "kms:ReEncryptFrom": "ReEncrypt",
    "kms:ReEncryptTo": "ReEncrypt",
    "s3:GetAccelerateConfiguration": "GetBucketAccelerateConfiguration",
    "s3:GetBucketCORS": "GetBucketCors",
    "s3:GetBucketObjectLockConfiguration": "GetObjectLockConfiguration",
    "s3:GetBucketPublicAccessBlock": "GetPublicAccessBlock",
    "s3:GetEncryptionConfiguration": "GetBucketEncryption",
    "s3:GetInventoryConfiguration": "ListBucketInventoryConfigurations",
    "s3:GetLifecycleConfiguration": "GetBucketLifecycleConfiguration",
    "s3:GetReplicationConfiguration": "GetBucketReplication",
    "s3:ListBucket": "ListObjectsV2",
    "s3:PutAccelerateConfiguration": "PutBucketAccelerateConfiguration",
    "s3:PutBucketCORS": "PutBucketCors",
    "s3:PutBucketPublicAccessBlock": "PutPublicAccessBlock",
    "s3:PutEncryptionConfiguration": "PutBucketEncryption",
    "s3:PutInventoryConfiguration": "DeleteBucketInventoryConfiguration",
    "s3:PutLifecycleConfiguration": "PutBucketLifecycleConfiguration",
    "s3:PutReplicationConfiguration": "PutBucketReplication",
}
"""Actions that are named otherwise than the call they allow (Service Authorization Reference)."""

NO_CALL = {"iam:PassRole"}


@cache
def table() -> Mapping[str, Any]:
    """``docs/iam/actions.yaml``."""
    found: Mapping[str, Any] = yaml.safe_load((IAM / "actions.yaml").read_text(encoding="utf-8"))
    return found


def statements(*policies: Path) -> Iterator[Mapping[str, Any]]:
    for policy in policies:
        document = json.loads(policy.read_text(encoding="utf-8"))
        assert document["Version"] == "2012-10-17"
        yield from document["Statement"]


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def allowed(*policies: Path) -> set[str]:
    return {action for statement in statements(*policies) for action in listed(statement["Action"])}


def reads(actions: Iterable[str]) -> set[str]:
    """Those that look at the cloud's resources; secrets are another matter, as is what decrypts."""
    return {
        action
        for action in actions
        if action.partition(":")[2].startswith(READS) and action.partition(":")[0] not in ("ssm", "kms")
    }


def of_rows(*sections: str) -> set[str]:
    """The actions of sections of the table, whatever part of a cluster they are for."""
    rows = [row for section in sections for row in table()[section].values()]
    return {
        action
        for row in rows
        for key, actions in (row.items() if isinstance(row, dict) else [("", row)])
        if key != "when"
        for action in actions
    }


def wanted_by_plan() -> set[str]:
    return of_rows("data", "plan") | reads(of_rows("resources"))


def wanted_by_apply() -> set[str]:
    return wanted_by_plan() | of_rows("resources", "apply")


def wanted_by_bake() -> set[str]:
    return of_rows("bake")


def declared(kind: str) -> set[str]:
    """Types of the ``resource`` or ``data`` blocks in our modules."""
    modules = (ROOT / "templates/terraform/modules").rglob("*.tf")
    return {
        name
        for path in modules
        for name in re.findall(rf'^{kind} "(\w+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_every_type_of_the_modules_has_its_actions() -> None:
    assert set(table()["resources"]) == declared("resource")
    assert set(table()["data"]) == declared("data")
    for kind, row in table()["resources"].items():
        assert [key for key in row if key != "when"] == ["create", "read", "update", "delete"], kind
        assert row["create"], kind
        assert row["read"], kind


def test_plan_may_do_what_it_needs_and_no_more() -> None:
    assert allowed(PLAN) == wanted_by_plan()


def test_apply_may_do_what_it_needs_and_no_more() -> None:
    assert allowed(PLAN, *APPLY) == wanted_by_apply()


def test_bake_may_do_what_it_needs_and_no_more() -> None:
    assert allowed(BAKE) == wanted_by_bake()


def test_every_call_that_our_own_code_makes_on_images_is_allowed() -> None:
    code = "".join(path.read_text() for path in (ROOT / "infra/drive/images").glob("*.py"))
    verbs = "authorize|copy|create|delete|deregister|describe|import|modify|terminate"
    calls = set(re.findall(rf"\b((?:{verbs})_[a-z_]+)(?=\(|\"\))", code))
    named = {action.partition(":")[2] for action in allowed(BAKE)}
    made = {"".join(word.capitalize() for word in call.split("_")) for call in calls}
    assert {"DescribeImages", "DeregisterImage", "ImportKeyPair"} <= made
    assert made <= named


def test_the_shared_secrets_store_gets_what_it_asks_for() -> None:
    from infra.drive.secrets.ssm import ACTIONS

    assert set(table()["apply"]["secrets"]["actions"]) == set(ACTIONS)


def test_each_action_exists() -> None:
    import botocore.session

    library: Any = botocore.session  # it has no annotations
    session = library.get_session()
    calls = {name: set(session.get_service_model(api).operation_names) for name, api in API.items()}
    unknown = []
    for action in sorted((wanted_by_apply() | wanted_by_bake()) - NO_CALL):
        service, _, name = action.partition(":")
        if CALLS.get(action, name) not in calls[service]:
            unknown.append(action)
    assert unknown == []


@pytest.mark.parametrize("policy", [*APPLY, BAKE, PLAN], ids=relative)
def test_a_policy_is_one_that_iam_takes(policy: Path) -> None:
    text = json.dumps(json.loads(policy.read_text(encoding="utf-8")), separators=(",", ":"))
    assert len(text) <= MANAGED_POLICY
    names = [statement["Sid"] for statement in statements(policy)]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[A-Za-z0-9]+", name) for name in names)


def test_a_role_can_have_them_all() -> None:
    assert len([*APPLY, PLAN]) <= POLICIES_PER_ROLE


@pytest.mark.parametrize("policy", [*APPLY, BAKE, PLAN], ids=relative)
def test_what_changes_anything_is_named_and_limited(policy: Path) -> None:
    for statement in statements(policy):
        actions = listed(statement["Action"])
        assert not [action for action in actions if "*" in action], statement["Sid"]
        changes = set(actions) - reads(actions)
        if "*" in listed(statement["Resource"]):
            # Ids of zones are not known beforehand, and no tag of theirs can be asked for. A subscription
            # is no resource of IAM's (Service Authorization Reference, "Amazon SNS").
            unlimited = {action for action in changes if not action.startswith("route53:")}
            assert unlimited <= {"sns:Unsubscribe"}, statement["Sid"]


def test_the_policies_are_those_of_the_reference_environment() -> None:
    from infra.load import load
    from infra.resolve.cluster import resolve
    from infra.resolve.lockfile import Lock

    cluster, _ = resolve(load(ROOT / "environments/research.yaml").spec, Lock(), "research")
    regions = sorted(region.region for region in cluster.regions)
    for statement in statements(*APPLY, BAKE, PLAN):
        equal = statement.get("Condition", {}).get("StringEquals", {})
        assert equal.get("aws:RequestedRegion", regions) == regions, statement["Sid"]
        for key, value in equal.items():
            if key.endswith("/environment"):
                assert value == cluster.tags["environment"]
    text = "".join(path.read_text(encoding="utf-8") for path in [*APPLY, PLAN])
    assert f"arn:aws:s3:::{cluster.state.bucket}/{cluster.state.key}" in text
    assert f"parameter{cluster.secrets.prefix}/*" in text


def test_every_test_in_quarantine_is_listed() -> None:
    section = (ROOT / "docs/testing.md").read_text(encoding="utf-8").partition("## Quarantine")[2]
    listed = set(re.findall(r"`(test_\w+)`", section))
    marked = re.compile(r"^@pytest\.mark\.quarantine\(.*?^def (test_\w+)", re.DOTALL | re.MULTILINE)
    found = [marked.findall(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("test_*.py")]
    assert listed == {name for names in found for name in names}
