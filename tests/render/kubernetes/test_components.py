"""What kubeadm, the kubelet, kube-proxy and the API server read, against the types that they read it into."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from golden_clusters import golden
from golden_folders import scenarios
from jsonschema import Draft202012Validator

from infra.render.kubernetes import kubeadm

SHAPES = Path(__file__).parents[2] / "data" / "components"
OF = {
    "kubeadm.k8s.io/v1beta4": "kubeadm",
    "kubelet.config.k8s.io/v1beta1": "kubelet",
    "kubeproxy.config.k8s.io/v1alpha1": "kube-proxy",
    "audit.k8s.io/v1": "audit",
}


@cache
def shapes(component: str) -> dict[str, Any]:
    by_kind: dict[str, Any] = json.loads((SHAPES / f"{component}.json").read_text(encoding="utf-8"))
    return by_kind


def documents(scenario: str) -> Iterator[tuple[str, dict[str, Any]]]:
    cluster = golden(scenario)
    files = kubeadm.render(cluster) if cluster.control_plane else {}
    for path, text in files.items():
        if path == "authentication.yaml":
            continue  # the API server itself takes it: tests/drive/kubernetes/test_single_sign_on.py
        for each in yaml.safe_load_all(text):
            if each and "kind" in each:
                yield path, each


@pytest.mark.parametrize("scenario", scenarios())
def test_every_document_is_of_its_types_shape(scenario: str) -> None:
    rendered = list(documents(scenario))
    wrong = [
        f"{path}: {each['kind']}: {fault.json_path}: {fault.message[:200]}"
        for path, each in rendered
        for fault in Draft202012Validator(shapes(OF[each["apiVersion"]])[each["kind"]]).iter_errors(each)
    ]
    assert not wrong, "\n".join(wrong)
    kinds = {each["kind"] for _, each in rendered}
    expected = {"ClusterConfiguration", "InitConfiguration", "JoinConfiguration", "KubeletConfiguration"}
    assert kinds >= expected if golden(scenario).control_plane else not kinds
