"""Amounts and lists as sentences have them; whole sentences: `tests/messages/autoscaler.txt`."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from infra.autoscaler.reasons import ObstacleCode, Reason, WorkCode
from infra.autoscaler.reporting import sentences

FULL: dict[str, Any] = {
    "what": "memory",
    "has": "x",
    "requested": 2,
    "limit": 1,
    "zones": (("a", "capacity"),),
}


@pytest.mark.parametrize(
    ("what", "amount", "text"),
    [
        ("nvidia.com/gpu", 8, "8 nvidia.com/gpu"),
        ("cpu", 1500, "1.5 cpu"),
        ("memory", 3 * 2**29, "1.5Gi memory"),
        ("hugepages-2Mi", 100, "100 hugepages-2Mi"),
    ],
)
def test_amounts_have_the_units_of_kubernetes(what: str, amount: int, text: str) -> None:
    assert sentences.readable(what, amount) == text


@pytest.mark.parametrize("code", [*get_args(ObstacleCode), *get_args(WorkCode)])
def test_each_code_has_a_sentence_of_its_own(code: Any) -> None:
    others = {*get_args(ObstacleCode), *get_args(WorkCode)} - {code}
    mine = sentences.reason(Reason(code, **FULL))
    assert mine not in {sentences.reason(Reason(other, **FULL)) for other in others}
