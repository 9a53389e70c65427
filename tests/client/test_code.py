"""What is shipped: the files that git sees, one archive a tree, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from causeway.code.archive import RefusedArchiveError, digest_of, unpack, write_archive
from causeway.code.difference import changes, unified
from causeway.code.imports import why_not_found
from causeway.code.limit import check_limit, largest
from causeway.code.secrets import find_secrets
from causeway.code.tree import Entry, ignoring, list_tree, look
from causeway.commands.packing import pack
from causeway.errors import InputError
from causeway.job import Code
from causeway.jobfile import load


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@lab.example", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def paths(folder: Path, **options: list[str]) -> list[str]:
    return [entry.path for entry in list_tree(folder, **options)]


def packed(folder: Path) -> tuple[str, bytes]:
    out = io.BytesIO()
    return write_archive(folder, list_tree(folder), out), out.getvalue()


# -- Which files --------------------------------------------------------------------------------------------


def test_tracked_and_new_files_are_shipped_and_ignored_ones_are_not(folder: Path) -> None:
    git(folder, "init", "-q")
    tracked = dict.fromkeys(("train.py", "gone.py", "lib/a.py", "kept.log"), "")
    write(folder, {**tracked, ".gitignore": "data/\n*.log\n"})
    git(folder, "add", "-f", ".")
    git(folder, "commit", "-qm", "x")
    (folder / "gone.py").unlink()
    write(folder, {"new.py": "", "data/x": "", "run.log": "", "lib/__pycache__/a.pyc": "", "wandb/run": ""})
    assert paths(folder) == [".gitignore", "kept.log", "lib/a.py", "new.py", "train.py"]


def test_a_folder_within_a_repository_is_shipped_alone(folder: Path) -> None:
    git(folder, "init", "-q")
    write(folder, {"a/train.py": "", "b/other.py": "", ".gitignore": "*.log\n", "a/x.log": ""})
    assert paths(folder / "a") == ["train.py"]


def test_submodules_are_shipped_with_their_own_rules(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write(other, {"lib.py": "", ".gitignore": "secret\n"})
    git(other, "init", "-q")
    git(other, "add", ".")
    git(other, "commit", "-qm", "x")
    git(folder, "init", "-q")
    git(folder, "submodule", "add", "-q", str(other), "vendor/other")
    write(folder, {"vendor/other/secret": ""})
    assert paths(folder) == [".gitmodules", "vendor/other/.gitignore", "vendor/other/lib.py"]


def test_without_git_all_is_shipped_but_caches_and_environments(folder: Path) -> None:
    files = [
        "train.py",
        "d/e.txt",
        "env/pyvenv.cfg",
        "env/lib/x.py",
        "node_modules/x/y.js",
        "__pycache__/a.pyc",
    ]
    write(folder, dict.fromkeys(files, ""))
    assert paths(folder) == ["d/e.txt", "train.py"]
    assert [*look(folder).left_out] == ["env/", "node_modules/"], "it is named"


def test_what_git_tracks_is_code_whatever_it_is_called(folder: Path) -> None:
    git(folder, "init", "-q")
    tracked = ["src/integrations/wandb/__init__.py", "src/node_modules/x.js", "venv/a.py", "env/pyvenv.cfg"]
    write(folder, dict.fromkeys(tracked, ""))
    git(folder, "add", "-f", ".")
    new = ["wandb/run-1/log", "a/mlruns/0/meta.yaml", "own/pyvenv.cfg", "own/lib/x.py", "a/__pycache__/x.pyc"]
    write(folder, dict.fromkeys(new, ""))
    assert paths(folder) == sorted(tracked)
    assert [*look(folder).left_out] == ["a/mlruns/", "own/", "wandb/"]
    write(folder, {".causewayignore": "/src/node_modules/\n!/wandb/\n"})
    tracked = [path for path in tracked if "node_modules" not in path]
    assert paths(folder) == sorted([*tracked, "wandb/run-1/log", ".causewayignore"])


def test_an_ignored_file_is_shipped_by_those_who_name_it(folder: Path) -> None:
    git(folder, "init", "-q")
    ignored = ["gen/msg_pb2.py", "gen/deep/x_pb2.py", "build/lib.py", "gen/__pycache__/a.pyc"]
    write(folder, {".gitignore": "gen/\nbuild/\n", "train.py": "", **dict.fromkeys(ignored, "")})
    assert paths(folder) == [".gitignore", "train.py"]
    assert paths(folder, include=["train.py", "gen/msg_pb2.py"]) == ["gen/msg_pb2.py", "train.py"]
    assert paths(folder, include=["*.py"]) == ["train.py"], "a wildcard means code"
    assert paths(folder, include=["*.py", "/gen/"], exclude=["deep/"]) == ["gen/msg_pb2.py", "train.py"]
    write(folder, {".causewayignore": "!/gen/\n/.gitignore\n"})
    assert paths(folder) == [".causewayignore", "gen/deep/x_pb2.py", "gen/msg_pb2.py", "train.py"]


@pytest.mark.parametrize(
    "breaks",
    ["echo not an index > .git/index", "rm .git/HEAD", "rm -r .git; echo gitdir: /nowhere/.git > .git"],
)
def test_a_repository_that_git_cannot_read_ships_nothing(folder: Path, breaks: str) -> None:
    git(folder, "init", "-q")
    write(folder, {".gitignore": "secret\n", "secret": "", "a/train.py": ""})
    subprocess.run(["sh", "-c", breaks], cwd=folder, check=True)
    for each in (folder, folder / "a"):
        with pytest.raises(InputError) as raised:
            list_tree(each)
        assert [(one.where, one.field) for one in raised.value.problems] == [(str(each), "code")]


def test_a_repository_of_another_user_ships_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(folder, "init", "-q")
    write(folder, {"train.py": ""})
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own tests do so
    with pytest.raises(InputError, match=r"safe\.directory"):
        list_tree(folder)


def test_without_a_git_program_a_repository_ships_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, {"train.py": ""})
    monkeypatch.setenv("PATH", str(folder))
    assert paths(folder) == ["train.py"]
    (folder / ".git").mkdir()
    with pytest.raises(InputError, match="PATH"):
        list_tree(folder)


def test_own_patterns_and_the_jobs(folder: Path) -> None:
    write(folder, {"train.py": "", "data/a": "", "data/b": "", ".causewayignore": "data/*\n!data/a\n"})
    assert paths(folder) == [".causewayignore", "data/a", "train.py"]
    assert paths(folder, include=["*.py"]) == ["train.py"]
    assert paths(folder, exclude=["*.py"]) == [".causewayignore", "data/a"]


@pytest.mark.parametrize("text", [b"data/\n\xe9t\xe9/\n", "data/\n".encode("utf-16")])
def test_own_patterns_that_are_no_utf_8_ship_nothing(folder: Path, text: bytes) -> None:
    """What they name would be shipped."""
    (folder / ".causewayignore").write_bytes(text)
    with pytest.raises(InputError) as raised:
        list_tree(folder)
    assert raised.value.problems[0].where.rpartition(":")[0] == str(folder / ".causewayignore")


def test_a_file_that_cannot_be_read_is_named(folder: Path) -> None:
    """Root can read all of them, but not a folder as a file."""
    (folder / "train").mkdir(exist_ok=True)
    entries = [Entry("train", 5, executable=False)]
    (problem,) = find_secrets(folder, entries)
    with pytest.raises(InputError) as raised:
        digest_of(folder, entries)
    assert problem == raised.value.problems[0]
    assert problem.where == str(folder / "train")


def test_a_folder_that_is_not_there_has_its_line(folder: Path) -> None:
    (folder / "job.yaml").write_text("run: x\ncode: ../nowhere\n")
    with pytest.raises(InputError) as raised:
        pack(load(folder / "job.yaml", {}, {}), allow_secrets=False)
    (problem,) = raised.value.problems
    assert (problem.where, problem.field) == (f"{folder / 'job.yaml'}:2", "code")


def test_links_stay_links_and_those_that_leave_the_folder_are_refused(folder: Path) -> None:
    write(folder, {"a/x.py": ""})
    (folder / "latest").symlink_to("a")
    (folder / "a/up").symlink_to("../a/x.py")
    assert [(entry.path, entry.link) for entry in list_tree(folder)] == [
        ("a/up", "../a/x.py"), ("a/x.py", None), ("latest", "a"),
    ]  # fmt: skip
    (folder / "home").symlink_to("/home")
    (folder / "a/out").symlink_to("../../x")
    with pytest.raises(InputError) as raised:
        list_tree(folder)
    assert [problem.where.rpartition("project/")[2] for problem in raised.value.problems] == ["a/out", "home"]


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("gen.msg_pb2", "echo '!/gen/' >> .causewayignore"),
        ("lab.data", "--env PYTHONPATH=src"),
        ("lab", "--env PYTHONPATH=src"),
        ("train", ""),
        ("numpy", ""),
    ],
)
def test_a_module_that_is_in_the_folder_is_not_one_to_install(folder: Path, module: str, said: str) -> None:
    git(folder, "init", "-q")
    files = ["gen/msg_pb2.py", "src/lab/__init__.py", "src/lab/data.py", "train.py"]
    write(folder, {".gitignore": "gen/\n", **dict.fromkeys(files, "")})
    hint = why_not_found(module, folder, Code())
    assert said in hint if said else not hint


# -- The archive --------------------------------------------------------------------------------------------

_NAMES = some.text("abcß.-_ ", min_size=1, max_size=6).filter(lambda name: name.strip(". ") != "")


@settings(max_examples=60, deadline=None)
@given(some.dictionaries(_NAMES, some.binary(max_size=2000), max_size=6), some.integers(0, 2**31))
def test_the_same_files_have_the_same_bytes_and_come_back(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], then: int
) -> None:
    one, other, back = (tmp_path_factory.mktemp(name) for name in ("one", "other", "back"))
    write(one, files)
    write(other, dict(reversed(files.items())))
    for path in other.iterdir():
        os.utime(path, (then, then))
        path.chmod(0o600)
    digest, data = packed(one)
    assert (digest, data) == packed(other)
    assert digest == digest_of(one, list_tree(one))
    unpack(io.BytesIO(data), digest, back / "code")
    assert {path.name: path.read_bytes() for path in (back / "code").iterdir()} == {
        path.name: path.read_bytes() for path in one.iterdir() if path.name in paths(one)
    }


def test_what_differs_has_another_name(folder: Path) -> None:
    write(folder, {"a": "1"})
    digests = {packed(folder)[0]}
    (folder / "a").chmod(0o755)
    digests.add(packed(folder)[0])
    write(folder, {"a": "2"})
    digests.add(packed(folder)[0])
    (folder / "a").rename(folder / "b")
    digests.add(packed(folder)[0])
    assert len(digests) == 4


def test_modes_and_links_come_back(folder: Path, tmp_path: Path) -> None:
    write(folder, {"run.sh": "#!/bin/sh\n"})
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("run.sh")
    digest, data = packed(folder)
    unpack(io.BytesIO(data), digest, tmp_path / "code")
    assert (tmp_path / "code/run.sh").stat().st_mode & 0o111
    assert (tmp_path / "code/link").readlink() == Path("run.sh")
    assert list(tmp_path.glob(".code*")) == []


def test_a_changed_byte_is_refused(folder: Path, tmp_path: Path) -> None:
    write(folder, {"a": "1" * 1000})
    digest, data = packed(folder)
    tar = bytearray(gzip.decompress(data))
    tar[600] ^= 1
    with pytest.raises(RefusedArchiveError):
        unpack(io.BytesIO(gzip.compress(bytes(tar))), digest, tmp_path / "code")
    for broken in (data[:-20], b"nothing", data[:50] + b"\0" + data[51:]):
        with pytest.raises(RefusedArchiveError):
            unpack(io.BytesIO(broken), digest, tmp_path / "code")
    assert not (tmp_path / "code").exists()


@pytest.mark.parametrize(
    ("name", "kind", "link"),
    [
        ("../out", tarfile.REGTYPE, ""),
        ("a/../../out", tarfile.REGTYPE, ""),
        ("link", tarfile.SYMTYPE, "/etc"),
        ("link", tarfile.SYMTYPE, "../x"),
        ("device", tarfile.CHRTYPE, ""),
        ("pipe", tarfile.FIFOTYPE, ""),
    ],
)
def test_archives_that_reach_out_are_refused(tmp_path: Path, name: str, kind: bytes, link: str) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        tar.addfile(info)
    digest = hashlib.sha256(out.getvalue()).hexdigest()
    with pytest.raises(RefusedArchiveError):
        unpack(io.BytesIO(gzip.compress(out.getvalue())), digest, tmp_path / "deep/code")
    assert not (tmp_path / "deep/out").exists()


# -- Limits and secrets -------------------------------------------------------------------------------------


def entries(sizes: Mapping[str, int]) -> list[Entry]:
    return [Entry(path, size, executable=False) for path, size in sorted(sizes.items())]


def test_over_the_limit_the_largest_paths_are_named() -> None:
    many = {f"data/img/{n}.png": 10 for n in range(100)}
    found = entries({**many, "weights/old/a.bin": 500, "weights/old/b.txt": 1, "src/a.py": 1})
    assert check_limit("project", found, 1502) == []
    (problem,) = check_limit("project", found, 1501)
    assert [line.split("echo ")[1] for line in problem.hint.splitlines()[1:]] == [
        f"'/{path}' >> .causewayignore" for path in ("data/img/", "weights/old/a.bin")
    ]


def test_a_folder_with_code_is_taken_apart() -> None:
    shards = {f"src/shards/{n}.npz": 10 for n in range(300)}
    beside = {f"src/{n}.Bin": 20 for n in range(20)}
    found = dict(largest(entries({**shards, **beside, "src/train.py": 30, "src/model/net.py": 1})))
    assert found == {"src/shards/": 3000, "src/*.Bin": 400, "src/train.py": 30, "src/model/net.py": 1}


def test_ten_are_named_at_most() -> None:
    assert len(largest(entries({f"{n}.{n}": n for n in range(30)}))) == 10


@pytest.mark.parametrize(
    "name", ["it's", "a b", "*.npz", "what?", "[x]", "back\\slash", "#x", "!x", "end ", "$HOME", "ß"]
)
def test_what_is_proposed_leaves_out_that_and_nothing_else(folder: Path, name: str) -> None:
    """By any name, and in any shell."""
    near = ["its", "ab", "x.npz", "what1", "x", "backslash", "end", "s"]
    for shell in ("sh", "bash"):
        write(folder, {f"{each}/data": "" for each in (name, *near)})
        (folder / ".causewayignore").unlink(missing_ok=True)
        subprocess.run([shell, "-c", ignoring(f"{name}/")], cwd=folder, check=True)
        assert paths(folder) == sorted([".causewayignore", *(f"{each}/data" for each in near)])


@pytest.mark.parametrize(
    ("path", "text", "refused"),
    [
        (".env", "", True),
        ("deploy/.env.production", "", True),
        (".env.example", "", False),
        ("id_ed25519", "", True),
        ("id_ed25519.pub", "", False),
        (".aws/credentials", "", True),
        ("lab.ovpn", "", True),
        ("ca.pem", "-----BEGIN CERTIFICATE-----", False),
        ("key.pem", "-----BEGIN RSA PRIVATE KEY-----", True),
        ("settings.py", "KEY = 'AKIA" + "ABCDEFGHIJKLMNOP'", True),
        ("settings.py", "token = 'ghp_" + "a" * 36 + "'", True),
        ("train.py", "akia = hf_model('x')", False),
        ("settings.py", "OPENAI = 'sk-proj-" + "aB3_" * 12 + "'", True),
        ("style.css", ".sk-folding-cube-with-a-very-long-name-of-its-own {}", False),
        ("task.py", "name = 'task-" + "aB3" * 15 + "'", False),
        ("run.sh", "export WANDB_API_KEY=" + "0a" * 20, True),
        ("train.py", "wandb.login(key='" + "0a" * 20 + "')", True),
        ("train.py", "wandb.init(project='x')  # commit " + "0a" * 20, False),
        (".npmrc", "//registry.npmjs.org/:_authToken=npm_" + "a1" * 18, True),
        (".npmrc", "//registry.npmjs.org/:_authToken=${NPM_TOKEN}", False),
        (".npmrc", "registry=https://registry.npmjs.org/", False),
        (".netrc", "", True),
        ("setup.sh", "echo machine api.wandb.ai login user password " + "0a" * 20 + " >>~/.netrc", True),
    ],
)
def test_what_looks_like_a_secret_is_named(folder: Path, path: str, text: str, refused: bool) -> None:
    write(folder, {path: text, "train.py" if path != "train.py" else "other.py": ""})
    assert [problem.where for problem in find_secrets(folder, list_tree(folder))] == (
        [str(folder / path)] if refused else []
    )


def test_what_differs_from_what_was_shipped_is_shown(tmp_path: Path) -> None:
    shipped, here = tmp_path / "shipped", tmp_path / "here"
    for folder in (shipped, here):
        (folder / "package").mkdir(parents=True)
        (folder / "package/same.py").write_text("same = 1\n")
        (folder / "data").write_bytes(folder.name.encode() + b"\xff")
        (folder / "link").symlink_to("package" if folder is shipped else "data")
    (shipped / "gone.py").write_text("old = 1\n")
    (here / "new.py").write_text("new = 1")
    entries = [entry.path for entry in list_tree(here)]
    assert list(changes(shipped, here, entries)) == [
        ("data", "changed"), ("gone.py", "removed"), ("link", "changed"), ("new.py", "added"),
    ]  # fmt: skip
    patch = "".join(line for path in ("data", "gone.py", "new.py") for line in unified(shipped, here, path))
    assert "a/data and b/data" in patch
    (shipped / "data").unlink()
    (here / "data").unlink()
    text = "".join(line for path in ("gone.py", "new.py") for line in unified(shipped, here, path))
    subprocess.run(["git", "apply"], input=text, text=True, check=True, cwd=shipped, capture_output=True)
    assert (shipped / "new.py").read_text() == "new = 1"
    assert not (shipped / "gone.py").exists()
