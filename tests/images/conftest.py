"""The world that images are baked in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from images.bake_environment import CLIENT, REGIONS, ROOT, SPEC, World, require, touched, wait_until_gone
from machines.deb import with_client

from infra.drive import localaws
from infra.drive.aws import Aws
from infra.drive.client import package
from infra.drive.images.bake import Job
from infra.load import load
from infra.render import render
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    require()
    machines = tmp_path / "machines"
    machines.mkdir()
    monkeypatch.setenv("CAUSEWAY_MACHINES", str(Path(__file__).with_name("standin.py")))
    monkeypatch.setenv("STANDIN", str(machines))
    folder = tmp_path / "build" / "state" / "aws"
    server = localaws.start(folder, "tiny")
    try:
        (tmp_path / "tiny.yaml").write_text(with_client(SPEC, tmp_path / "build", CLIENT))
        cluster, _ = resolve(load(tmp_path / "tiny.yaml").spec, Lock(), "tiny")
        monkeypatch.setenv("STANDIN_KUBERNETES", cluster.kubernetes.version)
        env = {**os.environ, **localaws.environment(server, "us-west-2")}
        files = render(cluster)
        build = tmp_path / "build"
        for path, text in files.items():
            if path.startswith("packer/"):
                (build / path).parent.mkdir(parents=True, exist_ok=True)
                (build / path).write_text(text)
        clients = {"x86_64": package(cluster.client, "amd64", build, {})}
        job = Job("tiny", build, files, REGIONS, ROOT, env, "0" * 40, "--env tiny", clients, polling=1)
        world = World(job, cluster, Aws(env), server, machines)
        world.before = touched(world)
        yield world
    finally:
        localaws.stop(folder)
        for process in machines.glob("i-*/pid"):
            wait_until_gone(int(process.read_text()))
