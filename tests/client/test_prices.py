"""What work costs, of the part of a machine that it takes."""

from __future__ import annotations

import pytest

from causeway.cluster.offer import GpuOffer, Machine
from causeway.cluster.prices import hourly, of_moving, of_worker, quote

_V100 = GpuOffer("v100", 8, 16384, "standard", None)


def machine(
    site: str = "us-west-2", pool: str | None = "v100", price: float | None = 24.0, spot: float | None = 8.0
) -> Machine:
    return Machine(site, pool, 4, 64_000, 480 << 10, _V100 if pool == "v100" else None, price, spot)


RACK = Machine("rack-a", None, 2, 32_000, 120 << 10, GpuOffer("titan", 4, 12288, "old", None), 0.0, None)


def test_a_worker_pays_for_its_part() -> None:
    assert hourly(machine(), 2, 60) == pytest.approx(6.0)
    assert hourly(machine(), 2, 60, spot=True) == pytest.approx(2.0)
    assert hourly(machine(pool="cpu"), 0, 16) == pytest.approx(6.0)
    assert hourly(RACK, 4, 8) == 0.0
    assert hourly(machine(price=None, spot=None), 1, 1) is None


def test_a_quote_spans_where_there_may_be_room() -> None:
    found = quote([(2, 4, 8.0, [RACK, machine()]), (1, 0, 4.0, [machine(pool="cpu")])])
    assert found.least == pytest.approx(1.5)
    assert found.most == pytest.approx(2 * 12 + 1.5)
    assert found.costs
    assert not quote([(1, 1, 1.0, [RACK])]).costs
    unknown = quote([(1, 1, 1.0, [RACK, machine(price=None)])])
    assert (unknown.costs, unknown.unknown) == (True, ("v100",))


def test_a_placed_worker_is_priced_by_its_node_and_without_one_by_its_pool() -> None:
    rows = [RACK, machine(), machine(site="us-east-1", price=32.0)]
    labels = {"causeway.dev/pool": "v100", "causeway.dev/site": "us-east-1"}
    assert of_worker(rows, labels, 8, 1) == 32.0
    assert of_worker(rows, {**labels, "causeway.dev/capacity-type": "spot"}, 8, 1) == 8.0
    assert of_worker(rows, {"causeway.dev/pool": "v100"}, 8, 1) == 24.0
    assert of_worker(rows, {"causeway.dev/site": "rack-a"}, 4, 1) == 0.0
    assert of_worker(rows, {"causeway.dev/site": "moon"}, 4, 1) is None


def test_each_worker_of_another_site_has_aws_charge_for_the_checkpoint_that_it_fetches() -> None:
    usd_per_gb = {"rack-a": 0.09, "us-west-2": 0.0, "us-east-1": 0.02}
    found = of_moving(10 << 30, 2, ["us-east-1", "us-west-2", "rack-a", "rack-a", "rack-b"], usd_per_gb)
    assert found == {"rack-a": pytest.approx(1.8), "us-east-1": pytest.approx(0.4)}
    assert of_moving(10 << 30, 2, ["rack-a"], {}) == {}, "an older cluster does not say"
