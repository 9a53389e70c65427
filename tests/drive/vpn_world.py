"""A gateway whose tunnels are drained and restored one by one, without daemons."""

from __future__ import annotations

from infra.model.tunnels import SiteGateway, SiteTunnel


class World:
    """Which tunnels are up and drained, the steps that were taken, and the regions lost on the way."""

    def __init__(self, gateway: SiteGateway) -> None:
        self.gateway = gateway
        self.up = {tunnel.name for tunnel in gateway.tunnels}
        self.drained: set[str] = set()
        self.steps: list[str] = []
        self.lost: list[str] = []

    def carries(self, tunnel: SiteTunnel) -> bool:
        return tunnel.name in self.up

    def drain(self, tunnel: SiteTunnel) -> None:
        self.step("drain", tunnel)
        self.drained.add(tunnel.name)
        self.look()

    def restore(self, tunnel: SiteTunnel) -> None:
        self.step("restore", tunnel)
        self.drained.discard(tunnel.name)
        self.look()

    def step(self, verb: str, tunnel: SiteTunnel) -> None:
        self.steps.append(f"{verb} {tunnel.name}")

    def look(self) -> None:
        """Every region must stay within reach at every step."""
        for peer in {tunnel.peer for tunnel in self.gateway.tunnels if tunnel.kind == "aws"}:
            ways = {tunnel.name for tunnel in self.gateway.tunnels if tunnel.peer == peer}
            if not ways & self.up - self.drained:
                self.lost.append(f"{peer} after {self.steps[-1:]}")
