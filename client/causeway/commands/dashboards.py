"""``dashboards``: forwards Grafana to a port of this machine while the command runs."""

from __future__ import annotations

from rich.console import Console

from causeway.cluster.connection import Cluster
from causeway.cluster.forwarding import forward
from causeway.errors import CausewayError


def dashboards(port: int) -> int:
    """Forward until Ctrl-C. Raises CausewayError if the cluster refuses it or has no Grafana, InputError if
    the port is in use."""
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
