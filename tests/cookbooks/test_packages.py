"""The packages of a role stand in its cookbook; the tests' machine and the docs have the same."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from cookbooks import kitchen

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "tests" / "packages.sh"

READ = """
require 'json'
ATTRIBUTES = Hash.new { |hash, key| hash[key] = Hash.new(&hash.default_proc) }
def default = ATTRIBUTES
load ARGV[0]
puts JSON.generate(ATTRIBUTES[ARGV[1]]['packages'])
"""


def packages(ruby: str, cookbook: str) -> set[str]:
    """A cookbook's packages, as Ruby reads them."""
    file = kitchen.COOKBOOKS / cookbook / "attributes" / "default.rb"
    return set(json.loads(kitchen.run(ruby, "-e", READ, str(file), cookbook)))


@pytest.mark.parametrize("cookbook", ["network_site", "network_access"])
def test_the_tests_machine_has_the_packages_of_a_role(tool: kitchen.Tool, cookbook: str) -> None:
    listed = kitchen.run(str(PACKAGES), "--list").split()
    assert packages(tool("ruby", "ruby"), cookbook) <= set(listed)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name) for name in listed)


def test_a_cookbook_without_a_list_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "packages.sh").symlink_to(PACKAGES)
    attributes = tmp_path / "cookbooks" / "network_site" / "attributes" / "default.rb"
    attributes.parent.mkdir(parents=True)
    attributes.write_text(
        "default['network_site']['packages'] = nil\ndefault['ssh_node']['packages'] = %w(git)\n"
    )
    done = subprocess.run(
        [tmp_path / "tests" / "packages.sh", "--list"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "network_site/attributes/default.rb" in done.stderr


@pytest.mark.parametrize(
    ("cookbook", "start"),
    [("network_site", "The gateway needs the packages"), ("network_access", "A server needs the packages")],
)
def test_the_docs_name_the_packages_of_a_role(tool: kitchen.Tool, cookbook: str, start: str) -> None:
    text = (ROOT / "docs" / "vpn.md").read_text(encoding="utf-8")
    sentence = re.search(re.escape(start) + r"(.*?)\.\s", text, re.DOTALL)
    assert sentence
    assert set(re.findall(r"`([^`]+)`", sentence[1])) == packages(tool("ruby", "ruby"), cookbook)
