"""Routes that are not systemd-networkd's, when it configures an interface again: with the real daemon."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DROP_INS = (
    ROOT / "cookbooks/base/files/networkd.conf",
    ROOT / "templates/strongswan/static/etc/systemd/networkd.conf.d/10-site-gateway.conf",
)
OURS = (
    "unreachable 10.1.0.0/16 metric 4278198272",
    "unreachable 10.2.0.0/16 proto static metric 254",
    "from 10.9.0.0/16 lookup 77",
)


def after_a_netplan_apply(drop_in: Path | None) -> str:
    for program in ("unshare", "dbus-daemon", "networkctl"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    if os.geteuid():
        pytest.skip("needs root")
    done = subprocess.run(
        (
            *("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc"),
            *("sh", Path(__file__).with_name("networkd.sh"), drop_in or ""),
        ),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_by_default_it_takes_away_what_keeps_traffic_inside() -> None:
    """Else the drop-ins would have nothing to do, and their tests could not fail."""
    left = after_a_netplan_apply(None)
    assert "default via 10.200.0.1" in left
    assert [each for each in OURS if each in left] == []


@pytest.mark.parametrize("drop_in", DROP_INS, ids=["base cookbook", "gateway"])
def test_with_our_drop_in_it_leaves_them(drop_in: Path) -> None:
    left = after_a_netplan_apply(drop_in)
    assert "default via 10.200.0.1" in left
    assert [each for each in OURS if each not in left] == []
