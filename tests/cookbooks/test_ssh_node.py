"""What the cookbook ``ssh_node`` writes, as the tools that read it see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cookbooks.kitchen import COOKBOOKS, RenderErb, Tool, run


@pytest.mark.parametrize("quota", [None, "400%"])
def test_user_slice(render_erb: RenderErb, tool: Tool, tmp_path: Path, quota: str | None) -> None:
    text = render_erb("ssh_node", "user-slice.conf.erb", {"ssh_node": {"limits": {"cpu_quota": quota}}})
    assert ("CPUQuota=400%" in text) is (quota is not None)
    unit = tmp_path / "user-1000.slice"
    unit.write_text(f"[Unit]\nDescription=One person's\n{text}")
    output = run(tool("systemd-analyze", "systemd"), "verify", "--man=no", "--generators=no", unit)
    assert "user-1000.slice" not in output, "what systemd does not know it names, and goes on"


def test_limits(render_erb: RenderErb) -> None:
    text = render_erb("ssh_node", "limits.conf.erb", {"ssh_node": {"ulimits": {"nofile": 4096}}})
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert rows == [["*", "-", "core", "0"], ["*", "-", "memlock", "unlimited"], ["*", "-", "nofile", "4096"]]


def test_profile(tool: Tool) -> None:
    run(tool("shellcheck", "shellcheck"), "--shell=sh", COOKBOOKS / "ssh_node" / "files" / "gpu.sh")


def test_motd(render_erb: RenderErb) -> None:
    node = {"causeway": {"fqdn": "login-1.lab.internal"}, "ssh_node": {"motd": ["Maintenance"]}}
    text = render_erb("ssh_node", "motd.erb", node)
    assert {"login-1.lab.internal:", "80%"} <= {*text.split()}
    assert text.splitlines()[-1].strip() == "Maintenance"
