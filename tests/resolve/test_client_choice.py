"""Which client runs the cookbooks, and what of the user's word reaches machines."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from infra.catalogue import software
from infra.load import load
from infra.model import Cluster
from infra.render.chef import render
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

SPEC = """\
version: 1
name: tiny
domain: tiny.internal
sites:
  lab:
    kind: physical
    cidr: 10.200.0.0/22
    nodes: {titan-01: {address: 10.200.0.11, cpus: 1, memory: 1 GiB}}
"""
SUM = "0123456789abcdef" * 4
CHEF = f"software: {{chef: {{version: 18.11.21, license: accept-silent, sha256: {{amd64: '{SUM}'}}}}}}\n"

# Ruby that reads a client.rb as Chef does, and tells of one setting.
READER = """\
require 'ostruct'
class Client
  attr_reader :said
  def chef_license(value) = @said = value
  def ohai = OpenStruct.new
  def report_handlers = []
  def exception_handlers = []
  def require(_path) = true
  def method_missing(*) = nil
  def respond_to_missing?(*) = true
end
module Causeway; RunReport = Struct.new(:repository); end
client = Client.new
client.instance_eval(File.read(ARGV.first), ARGV.first)
p client.said
"""


def cluster(tmp_path: Path, more: str = "") -> Cluster:
    (tmp_path / "tiny.yaml").write_text(SPEC + more)
    return resolve(load(tmp_path / "tiny.yaml").spec, Lock(), "tiny")[0]


def test_cinc_is_pinned_for_every_architecture_unless_chef_is_chosen(tmp_path: Path) -> None:
    found = cluster(tmp_path).client
    known = software.find("cinc")
    assert known is not None
    assert (found.name, found.version, found.license) == ("cinc", known.version, None)
    assert set(found.sha256) == set(software.ARCHITECTURES)
    assert known.version is not None
    assert known.version in found.url
    chosen = cluster(tmp_path, CHEF).client
    assert (chosen.name, chosen.license, chosen.sha256) == ("chef", "accept-silent", {"amd64": SUM})


def test_a_mirror_serves_what_the_makers_serve(tmp_path: Path) -> None:
    url = "https://mirror.lab.example/cinc_%{arch}.deb"
    known = software.find("cinc")
    assert known is not None
    found = cluster(tmp_path, f"software: {{cinc: {{version: {known.version}, url: '{url}'}}}}\n").client
    assert (found.url, found.sha256) == (url, known.sha256)


@pytest.mark.skipif(shutil.which("ruby") is None, reason="needs ruby")
@pytest.mark.parametrize(("more", "said"), [("", "nil"), (CHEF, '"accept-silent"')])
def test_a_licence_is_accepted_in_the_users_words_or_not_at_all(tmp_path: Path, more: str, said: str) -> None:
    files = render(cluster(tmp_path, more))
    for path, text in files.items():
        file = tmp_path / "chef" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "reader.rb").write_text(READER)
    done = subprocess.run(
        ["ruby", tmp_path / "reader.rb", tmp_path / "chef" / "client.rb"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == said
    assert not [path for path, text in files.items() if "CHEF_LICENSE" in text]
