"""The list of container images against what Helm, kubeadm and our own manifests name.

Charts are found below the folder that CAUSEWAY_CHARTS names; kubeadm below KUBEBUILDER_ASSETS.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kube_tools
import pytest
import yaml
from golden_clusters import golden
from msgspec.structs import replace

from infra.catalogue import addons, releases
from infra.load import load
from infra.model import Cluster
from infra.model.containers import ContainerImage, parse
from infra.render import kubernetes
from infra.render.kubernetes import charts
from infra.render.kubernetes.containers import pulled
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

ROOT = Path(__file__).parents[3]
MINOR = "1.36"

NEVER = {
    "quay.io/thanos/thanos:v0.42.4": "Prometheus has no Thanos sidecar here",
    "quay.io/jetstack/cert-manager-acmesolver:v1.21.1": "for issuers of kind ACME: ours is a CA",
}
"""Images that a chart names in an argument, and that nothing starts: why."""
_NAMED = re.compile(r"(?:[\w-]+\.)+[a-z]{2,}/[\w./-]+:[\w][\w.-]*")


def named(text: str, tmp_path: Path) -> Cluster:
    """``minimal`` with something more in its spec."""
    (tmp_path / "own.yaml").write_text((ROOT / "environments/minimal.yaml").read_text() + text)
    (tmp_path / "base.yaml").write_text((ROOT / "environments/base.yaml").read_text())
    return resolve(load(tmp_path / "own.yaml").spec, Lock(), "own")[0]


class _Loader(yaml.SafeLoader):
    """Takes ``=`` for text, which is a key in kinds of charts."""


_Loader.add_constructor("tag:yaml.org,2002:value", lambda *_: "=")


def of_charts(of: Cluster) -> Iterator[str]:
    """Each image of each release: of pods, of Prometheus and Alertmanager, and in arguments and variables."""
    for release in (each for part in charts._PARTS for each in part.releases(of)):
        folder = kube_tools.chart(release.chart.name)
        done = subprocess.run(
            [
                kube_tools.helm(), "template", release.name, folder, "--namespace", release.chart.namespace,
                "--values", "-", "--kube-version", f"{of.kubernetes.version}.0",
                "--api-versions", "monitoring.coreos.com/v1",
                "--api-versions", "monitoring.coreos.com/v1/ServiceMonitor",
            ],
            input=yaml.safe_dump(release.values), capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        for document in yaml.load_all(done.stdout, _Loader):
            if document and document["kind"] != "CustomResourceDefinition" and not _is_test(document):
                yield from _images(document)


def _is_test(document: Any) -> bool:
    """Whether only ``helm test`` runs it."""
    hooks = (document["metadata"].get("annotations") or {}).get("helm.sh/hook", "")
    return {*hooks.split(",")} <= {"test", "test-success"} and bool(hooks)


def _images(thing: Any) -> Iterator[str]:
    if isinstance(thing, list):
        for each in thing:
            yield from _images(each)
    elif isinstance(thing, dict):
        for key, value in thing.items():
            if key == "image" and isinstance(value, str):
                yield value
            elif key == "args":
                yield from (name for each in value for name in _NAMED.findall(str(each)))
            elif key == "env":
                yield from (name for each in value for name in _NAMED.findall(str(each.get("value", ""))))
            else:
                yield from _images(value)


def of_manifests(of: Cluster) -> Iterator[str]:
    """Each ``image:`` of what is rendered for kubectl, by its text."""
    for path, text in kubernetes.render(of).items():
        if not path.startswith("charts/"):
            yield from re.findall(r'^\s*(?:- )?image: "?([^\s"]+)"?$', text, re.MULTILINE)


def of_kubeadm(release: str) -> list[str]:
    done = subprocess.run(
        [kube_tools.need("kubeadm"), "config", "images", "list", "--kubernetes-version", release],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.split()


def of_research(environment: str) -> set[str]:
    """Images of jobs, as the spec names them."""
    written = yaml.safe_load(Path(f"environments/{environment}.yaml").read_text())
    if "research" not in written:
        return set()
    images = written["research"]["images"].values()
    return {written["research"]["tools"], *(each["image"] for each in images)}


@pytest.mark.parametrize("name", ["research", "minimal"])
def test_the_list_is_what_charts_manifests_and_kubeadm_name(name: str) -> None:
    known = releases.kubernetes(MINOR)
    assert known is not None
    found = pulled(golden(name))
    assert found.unknown == ()
    in_charts = {*of_charts(golden(name))}
    expected = {*of_manifests(golden(name)), *in_charts, *known.kubeadm, *of_research(name)} - {*NEVER}
    assert {each.name for each in found.images} == {parse(each).name for each in expected}
    if name == "research":
        assert {*NEVER} <= in_charts


def test_what_is_off_by_default_is_listed_when_it_is_on(tmp_path: Path) -> None:
    own = named("kubernetes: {addons: {jobset: {}, grafana: {enabled: false}}}\n", tmp_path)
    found = {each.name: each.users for each in pulled(own).images}
    assert found["registry.k8s.io/jobset/jobset:v0.12.0"] == ("jobset",)
    assert not any("grafana" in each or "k8s-sidecar" in each for each in found)
    in_charts = {parse(each).name for each in of_charts(own)} - {*NEVER}
    assert in_charts <= {*found}
    assert {name for name, users in found.items() if users == ("prometheus",)} <= in_charts


def test_masters_have_the_images_of_the_tested_kubeadm() -> None:
    known = releases.kubernetes(MINOR)
    assert known is not None
    listed = [*known.kubeadm]
    tag = next(parse(each).tag for each in listed if "kube-apiserver" in each)
    said = subprocess.run(
        [kube_tools.need("kubeadm"), "version", "--output", "short"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if said != tag:
        pytest.skip(f"this kubeadm is {said}, the catalogue's is {tag}")
    assert listed == of_kubeadm(tag)


def test_containerd_has_the_pause_image_of_the_list() -> None:
    known = releases.kubernetes(MINOR)
    assert known is not None
    text = (ROOT / "cookbooks/container_runtime/libraries/containerd.rb").read_text()
    by_minor = dict(re.findall(r"'(1\.\d+)' => '([\d.]+)'", text))
    newest = re.search(r"NEWEST_PAUSE = '([\d.]+)'", text)
    assert newest is not None
    assert f"registry.k8s.io/pause:{by_minor.get(MINOR, newest[1])}" in known.kubeadm


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    own = named("kubernetes: {addons: {ingress: {version: 40.0.0}}}\n", tmp_path)
    assert ["40.0.0" in line for line in pulled(own).unknown] == [True]
    assert not any(each.repository == "library/traefik" for each in pulled(own).images)
    kubernetes = replace(golden("minimal").kubernetes, version="1.35", kubeadm_images=())
    older = replace(golden("minimal"), kubernetes=kubernetes)
    assert ["1.35" in line for line in pulled(older).unknown] == [True]
    assert not any(
        each.repository.startswith("kube-") and "kubeadm" in each.users for each in pulled(older).images
    )


def test_every_chart_of_the_catalogue_says_its_images() -> None:
    on = (addons.find(name) for name in addons.names())
    for chart in {each.chart for each in on if each is not None and each.chart is not None}:
        images = addons.chart(chart).images
        assert images, chart
        assert {*images} == {parse(each).name for each in images}, chart


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("busybox", ("docker.io", "library/busybox", "latest", "")),
        ("traefik:v3", ("docker.io", "library/traefik", "v3", "")),
        ("docker.io/traefik:v3", ("docker.io", "library/traefik", "v3", "")),
        ("rclone/rclone:1", ("docker.io", "rclone/rclone", "1", "")),
        ("localhost:5000/a/b:1", ("localhost:5000", "a/b", "1", "")),
        ("quay.io/a/b@sha256:12", ("quay.io", "a/b", "", "sha256:12")),
        ("quay.io/a/b:1@sha256:12", ("quay.io", "a/b", "1", "sha256:12")),
    ],
)
def test_names_are_taken_as_runtimes_take_them(name: str, parts: tuple[str, str, str, str]) -> None:
    assert parse(name) == ContainerImage(*parts)
    assert parse(parse(name).name) == parse(name)
