"""Manifests as YAML: static ones are copied, values of a cluster stay values."""

from __future__ import annotations

from functools import cache

import pytest
from golden_clusters import golden, with_masters
from msgspec.structs import replace
from strategies.outputs import outputs_for

from infra.errors import RenderError
from infra.render import kubernetes
from infra.render.kubernetes.manifests import Manifest, filled, joined, of, static, to_yaml, written
from infra.render.templating import TEMPLATES

FOLDER = TEMPLATES / "kubernetes"
STATIC = sorted(
    path.relative_to(FOLDER / "static").as_posix()
    for path in (FOLDER / "static").rglob("*.yaml")
    if path.parent.name != "alerts"
)


@cache
def rendered() -> list[str]:
    """Every text that some cluster has."""
    research = golden("research")
    assert research.tracking is not None
    clusters = [golden(name) for name in with_masters()]
    clusters += [replace(research, tracking=replace(research.tracking, managed=None))]
    return [text for each in clusters for text in kubernetes.render(each, outputs_for(each)).values()]


@pytest.mark.parametrize("path", STATIC)
def test_each_static_file_reaches_a_cluster_with_its_comments(path: str) -> None:
    text = (FOLDER / "static" / path).read_text(encoding="utf-8")
    assert any(text in each for each in rendered())


@pytest.mark.parametrize(
    "image", ["a: {b}", "x\n  privileged: true", '"', "{{ gpus }}", "no", "#", "1e3", "\u2028é"]
)
def test_a_value_stays_a_value(image: str) -> None:
    (daemons,) = filled("efa/device-plugin", image=image)
    (container,) = daemons["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image


def test_a_value_that_is_missing_is_an_error_of_ours() -> None:
    with pytest.raises(RenderError, match=r"templates/kubernetes/efa/device-plugin\.yaml\.j2"):
        filled("efa/device-plugin")


def test_more_objects_come_after_a_text() -> None:
    first, second = of("v1", "ConfigMap", "a"), of("v1", "ConfigMap", "b")
    text = "# why\n" + to_yaml([first])
    assert list(joined([Manifest(text), [second]])) == [first, second]
    assert joined([Manifest(text), Manifest(text)]).text == f"{text}---\n{text}"
    assert written({"none.yaml": joined([]), "some.yaml": Manifest(text)}).keys() == {
        "kustomization.yaml",
        "some.yaml",
    }
    assert joined([Manifest(text), []]).text == text
    assert [each["kind"] for each in static("gpu/runtime")] == ["RuntimeClass"]


@pytest.mark.parametrize("scenario", with_masters())
def test_policies_take_no_parameters(scenario: str) -> None:
    """Of a core kind the API server may go on with old ones until it is restarted (kubernetes#130887)."""
    texts = kubernetes.render(golden(scenario), outputs_for(golden(scenario))).items()
    found = [each for path, text in texts if "AdmissionPolicy\n" in text for each in Manifest(text)]
    policies = [each for each in found if each["kind"].endswith("AdmissionPolicy")]
    assert len(policies) > 5
    assert not [each["metadata"]["name"] for each in policies if "paramKind" in each["spec"]]
    assert {each["spec"]["failurePolicy"] for each in policies} == {"Fail"}
