"""Specs of released versions: Terraform has the same resources, at the same addresses, or moves them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from released import plans
from released.test_released_files import RELEASES

SPECS = [folder for release in RELEASES for folder in sorted((release / "specs").iterdir())]


@pytest.mark.parametrize("folder", SPECS, ids=lambda each: f"{each.parents[1].name}/{each.name}")
def test_no_resource_is_lost_or_another(folder: Path, tmp_path: Path) -> None:
    before = json.loads((folder / "resources.json").read_text(encoding="utf-8"))
    spec, lock = ((folder / name).read_text(encoding="utf-8") for name in ("spec.yaml", "lock.yaml"))
    now, texts = plans.planned(tmp_path, folder.name, spec, lock)
    assert plans.lost(before, now, texts) == []


BEFORE = {
    "module.a.aws_vpc.this": {"cidr_block": "10.0.0.0/16"},
    'module.a.aws_subnet.private["a"]': {},
    'module.a.module.pool["gpu"].aws_group.this': {"name": "gpu"},
}
MOVES = {
    "nothing": ("", list(BEFORE), []),
    "gone": ("", [*BEFORE][:2], [[*BEFORE][2]]),
    "moved": ('moved {\n  from = aws_vpc.this\n  to   = aws_vpc.main\n}',
              ["module.a.aws_vpc.main", *[*BEFORE][1:]], []),
    "moved with its module": ('moved {\n from = module.pool["gpu"]\n to = module.pools["gpu"]\n}',
                              [*[*BEFORE][:2], 'module.a.module.pools["gpu"].aws_group.this'], []),
    "moved to where nothing is": ("moved {\n from = aws_vpc.this\n to = aws_vpc.main\n}",
                                  [*BEFORE][1:], [next(iter(BEFORE))]),
    "removed": ("removed {\n from = module.a.aws_vpc.this\n lifecycle {}\n}", [*BEFORE][1:], []),
    "another": ("", [*BEFORE], ["module.a.aws_vpc.this: cidr_block"]),
}  # fmt: skip


@pytest.mark.parametrize("case", MOVES)
def test_what_is_lost(case: str) -> None:
    text, addresses, problems = MOVES[case]
    now = {address: BEFORE.get(address, {}) for address in addresses}
    if case == "another":
        now["module.a.aws_vpc.this"] = {"cidr_block": "10.9.0.0/16"}
    assert plans.lost(BEFORE, now, [text]) == problems
