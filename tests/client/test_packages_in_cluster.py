"""``python:`` in a cluster: one worker installs, the others and the next start take what it has installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from client.jobset_world import World
from client.pods import can_run
from client.process import Causeway, program
from client.wheels import wheel

pytestmark = pytest.mark.skipif(bool(can_run()), reason=can_run())


def kept(world: World) -> dict[str, int]:
    """What is in the store of packages: key → how often it was written."""
    found: dict[str, int] = {}
    versions = world.s3().list_object_versions(Bucket=world.bucket, Prefix="code/user-ada/python/")
    for each in versions.get("Versions", ()):
        found[each["Key"]] = found.get(each["Key"], 0) + 1
    return found


def test_the_first_worker_installs_for_all_and_the_next_start_takes_it(
    ada: Causeway, world: World, folder: Path
) -> None:
    wheel(folder / "wheels", "hello", "1.0", requires=["torch>=1.0"])
    (folder / "requirements.txt").write_text("--no-index\n--find-links wheels\nhello\n")
    program(folder, "import hello, torch; print('hello', hello.version, hello.__file__, torch.__file__)")
    (folder / "job.yaml").write_text("name: two\nrun: python train.py\nnodes: 2\npython: requirements.txt\n")
    first = ada("run", "job.yaml", "--launcher", "none", "--json")
    assert first.code == 0, first.err
    where = "/causeway/python/lib/python3.11/site-packages/hello.py"
    torch = "/usr/lib/python3/dist-packages/torch/__init__.py"
    assert first.err.count(f"hello 1.0 {where} {torch}") == 2
    assert sorted(kept(world).values()) == [1, 1], "an archive, and the pointer to it"
    again = ada("run", "job.yaml", "--launcher", "none", "--json")
    assert again.code == 0, again.err
    assert again.err.count(f"hello 1.0 {where}") == 2
    assert sorted(kept(world).values()) == [1, 1], "nothing was installed"


def test_packages_that_are_not_those_that_were_installed_do_not_run(
    ada: Causeway, world: World, folder: Path
) -> None:
    wheel(folder / "wheels", "hello", "2.0")
    (folder / "requirements.txt").write_text("--no-index\n--find-links wheels\nhello\n")
    program(folder, "import hello; print('this must not run twice')")
    before = set(kept(world))
    options = ("--name", "forged", "--python", "requirements.txt", "--json")
    arguments = ("run", *options, "--", "python", "train.py")
    assert ada(*arguments).code == 0
    (archive,) = [key for key in set(kept(world)) - before if key.endswith(".tar.gz")]
    data = bytearray(world.s3().get_object(Bucket=world.bucket, Key=archive)["Body"].read())
    data[len(data) // 2] ^= 1
    world.s3().put_object(Bucket=world.bucket, Key=archive, Body=bytes(data))
    done = ada(*arguments)
    first: Any = done.json["first_failure"]
    assert (done.code, done.json["restarts"], first["exit"]) == (1, 0, 78), done.err
    assert "requirements.txt" in first["reason"]
    world.s3().delete_object(Bucket=world.bucket, Key=archive)
    assert ada(*arguments).code == 0, "an archive that is gone is installed again"


def test_what_cannot_be_installed_ends_the_run_in_uvs_words(ada: Causeway, folder: Path) -> None:
    program(folder, "print('started')")
    (folder / "requirements.txt").write_text("--no-index\nno-such-package==1\n")
    (folder / "job.yaml").write_text(
        "name: lacks\nrun: python train.py\nnodes: 2\npython: requirements.txt\n"
    )
    done = ada("run", "job.yaml", "--json")
    assert (done.code, done.json["restarts"]) == (1, 0), done.err
    first = done.json["first_failure"]
    assert (first["exit"], "no-such-package" in " ".join(first["lines"])) == (78, True), first
    assert "no-such-package" in ada("why", done.json["name"]).out
    assert "started" not in done.err.splitlines()


def test_a_list_that_is_not_shipped_is_refused_before_anything_is_sent(ada: Causeway, folder: Path) -> None:
    program(folder, "")
    (folder / "job.yaml").write_text("run: python train.py\npython: requirements.txt\n")
    done = ada("run", "job.yaml")
    assert (done.code, "job.yaml:2: python:" in done.err) == (2, True), done.err


def test_what_one_person_gives_uv_reaches_it_and_keeps_environments_apart(
    ada: Causeway, world: World, folder: Path
) -> None:
    """The index, from `env`: no other environment has these packages."""
    index = folder / "index"
    wheel(index, "hello", "3.0")
    (folder / "requirements.txt").write_text("hello\n")
    program(folder, "import hello; print('hello', hello.version)")
    env = {"UV_OFFLINE": "1", "UV_FIND_LINKS": "/causeway/code/index"}
    job = {"name": "index", "run": "python train.py", "python": "requirements.txt", "env": env}
    (folder / "job.yaml").write_text(json.dumps(job))
    before = set(kept(world))
    done = ada("run", "job.yaml", "--json")
    assert (done.code, "hello 3.0" in done.err) == (0, True), done.err
    assert len(set(kept(world)) - before) == 2
    made = yaml.safe_load(ada("run", "job.yaml", "--dry-run").out)
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["initContainers"]] == ["image", "code", "packages", "keep"]
    assert "nvidia.com/gpu" not in pod["initContainers"][2]["resources"]["limits"]
