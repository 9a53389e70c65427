"""Values in the words of the person who writes them: what is spelled reads back as the same value."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from infra.schema.formatting import plain, spelled
from infra.schema.sites import Nat
from infra.schema.types import Bool, Cidr, Duration, Int, Size, Text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Size, "500 GiB"), (Size, "2 TiB"), (Size, "1025 MiB"), (Size | None, "1 GiB"),
        (Duration, "90m"), (Duration, "1d"), (Duration, "61s"), (Duration, "0s"), (Duration, "25h"),
        (Cidr, "10.0.0.0/8"), (Bool, "true"), (Bool, "false"), (Int, "22"), (Text, "no"),
        (Nat, "one-per-zone"),
    ],
)  # fmt: skip
def test_there_and_back(kind: Any, text: str) -> None:
    assert spelled(kind, plain(TypeAdapter(kind).validate_python(text))) == text


def test_what_has_no_value_or_holds_more() -> None:
    assert spelled(Text | None, None) == "nothing"
    assert spelled(Text, "") == '""'
    assert spelled(tuple[Size, ...], [1024, 1]) == "[1 GiB, 1 MiB]"
    assert spelled(dict[str, Text], {"a": "b", "c": {"d": 1}}) == "{a: b, c: …}"
