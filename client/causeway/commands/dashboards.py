"""``dashboards``: Grafana, at a port of this machine for as long as the command runs."""

from __future__ import annotations

from rich.console import Console

from causeway.cluster.connection import Cluster
from causeway.cluster.forwarding import forward
from causeway.errors import CausewayError


def dashboards(port: int) -> int:
    """Until Ctrl-C. CausewayError where the cluster refuses it or has none, InputError for a port in use."""
    out, err = (Console(stderr=stderr, highlight=False, soft_wrap=True) for stderr in (False, True))
    cluster = Cluster()
    board = cluster.offer.dashboards
    if board is None:
        raise CausewayError("this cluster's offer does not have the address of Grafana; ask its engineers")
    forward(
        cluster,
        f"/api/v1/namespaces/{board.namespace}/pods/{board.pod}",
        board.port,
        port,
        opened=lambda: out.print(f"http://localhost:{port} shows Grafana until Ctrl-C"),
        failed=lambda text: err.print(f"error: {text}", markup=False),
    )
    return 0
