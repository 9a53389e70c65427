"""What a node's textfile for the node exporter says, read as Prometheus does."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from network.node import Node
from prometheus_client.parser import text_string_to_metric_families

FOLDER = "/var/lib/prometheus/node-exporter"

Samples = Mapping[tuple[str, str], float]
"""Metric without `causeway_`, and the value of its first label or "" → value."""


def collected(node: Node, label: str, *command: str) -> Samples:
    """Runs the command that writes the file, and reads it. `label`: which one tells samples apart."""
    node.check("mkdir", "-p", FOLDER)
    node.check(*command)
    text = node.check("sh", "-c", f"cat {FOLDER}/*.prom")
    _check(node, text)
    return {
        (sample.name.removeprefix("causeway_"), sample.labels.get(label, "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _check(node: Node, text: str) -> None:
    """Prometheus's own look at names and types."""
    if shutil.which("promtool"):
        assert node.check("promtool", "check", "metrics", stdin=text) == ""
