"""The Python packages that cookbooks bring to machines."""

from __future__ import annotations

from pathlib import Path

import grimp
import pytest

COOKBOOKS = Path(__file__).parents[2] / "cookbooks"
PACKAGES = sorted(COOKBOOKS.glob("*/files/*/__init__.py"))


@pytest.mark.parametrize("init", PACKAGES, ids=lambda init: init.parent.name)
def test_modules_do_not_import_each_other_in_a_circle(init: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """lint-imports holds this for ``infra`` and the client; these packages are not installed here."""
    monkeypatch.syspath_prepend(str(init.parents[1]))
    graph = grimp.build_graph(init.parent.name, cache_dir=None)
    assert len(graph.modules) > 1
    assert graph.nominate_cycle_breakers(init.parent.name) == set()
