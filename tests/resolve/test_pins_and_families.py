"""What is installed from outside of the distribution: the spec's word, else the catalogue's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies.reading import resolved

from infra.catalogue import drivers, gpus
from infra.catalogue import software as catalogue
from infra.model.software import GpuFamily, Pin

SUM = "0" * 64
MIRROR = "https://mirror.example/%{machine}.sh"


def pins(software: dict[str, Any]) -> dict[str, Pin]:
    """Name → pin, of a spec with these."""
    cluster = resolved(sites={"us-west-2": {"kind": "aws"}}, images={"cpu": {}}, software=software)
    return {pin.name: pin for pin in cluster.software}


def test_without_a_word_the_catalogue_decides() -> None:
    found = pins({})
    # What runs the cookbooks is not among what they install.
    assert list(found) == [name for name in catalogue.names() if name not in ("chef", "cinc")]
    for name, pin in found.items():
        known = catalogue.find(name)
        assert known is not None
        assert (pin.version, dict(pin.sha256)) == (known.version, dict(known.sha256))
        assert "{version}" not in (pin.url or "")


def test_a_version_by_itself() -> None:
    assert pins({"torch": "2.9.1"})["torch"] == Pin("torch", "2.9.1", None, {})
    assert pins({"containerd": "2.3"})["containerd"].version == "2.3"


def test_another_version_has_another_place_and_its_own_sums() -> None:
    found = pins({"miniforge": {"version": "26.1.0-0", "sha256": {"amd64": SUM}}})["miniforge"]
    assert found.url is not None
    assert "26.1.0-0/Miniforge3-26.1.0-0-Linux-%{machine}.sh" in found.url
    assert found.sha256 == {"amd64": SUM}


def test_a_mirror_serves_what_the_makers_serve() -> None:
    known = catalogue.find("miniforge")
    assert known is not None
    found = pins({"miniforge": {"version": known.version, "url": MIRROR}})["miniforge"]
    assert found == Pin("miniforge", known.version, MIRROR, known.sha256)


@settings(deadline=None)
@given(st.from_regex(r"[0-9][0-9A-Za-z.+-]{0,20}", fullmatch=True))
def test_sums_are_never_those_of_another_version(version: str) -> None:
    known = catalogue.find("miniforge")
    assert known is not None
    found = pins({"miniforge": {"version": version, "url": MIRROR, "sha256": {"arm64": SUM}}})["miniforge"]
    assert (found.version, found.sha256) == (version, {"arm64": SUM})


def families(*models: str, roles: tuple[str, ...] = (), **pools: str) -> dict[str, GpuFamily]:
    """Name → family, of a spec with these GPUs, roles of an image, and pools."""
    nodes = {
        f"node-{index}": {
            "address": f"192.168.1.{10 + index}", "cpus": 8, "memory": "16 GiB", "gpus": {"model": gpu},
        }
        for index, gpu in enumerate(models)
    }  # fmt: skip
    cluster = resolved(
        sites={
            "rack": {"kind": "physical", "cidr": "192.168.1.0/24", "ubuntu": "22.04", "nodes": nodes},
            "us-west-2": {"kind": "aws"},
        },
        images={"cpu": {}, "gpu": {"gpu": {"driver": 580}, "roles": list(roles)}},
        pools={
            name: {"image": "gpu", "instance_types": [kind], "regions": {"us-west-2": {"max": 1}}}
            for name, kind in pools.items()
        },
    )
    return {family.name: family for family in cluster.gpu_families}


def test_families_are_those_of_all_gpus_there_are() -> None:
    assert families() == {}
    assert families("titan-x-pascal", "k80", turing="g4dn.xlarge") == {
        "kepler": GpuFamily("kepler", 470, False),
        "pascal": GpuFamily("pascal", 580, False),
        "turing": GpuFamily("turing", 580, True),
    }


def test_an_image_s_role_makes_a_family() -> None:
    found = families(roles=("base", "gpu-worker-hopper"))
    assert found == {"hopper": GpuFamily("hopper", 580, True)}


@pytest.mark.parametrize("family", gpus.ARCHITECTURES)
def test_every_family_has_a_driver_that_runs_gpus_of_it(family: str) -> None:
    found = families(roles=(f"gpu-worker-{family}",))[family]
    models = [gpu for name in gpus.names() if (gpu := gpus.find(name)) and gpu.architecture == family]
    assert any(gpu.runs(found.driver) for gpu in models)
    assert drivers.find(found.driver) is not None


def test_a_family_s_driver_runs_the_oldest_of_its_gpus() -> None:
    assert families("k520", "k80")["kepler"].driver == 367
    assert families(roles=("gpu-worker-kepler",))["kepler"].driver == 470


def test_a_branch_runs_all_gpus_of_a_family() -> None:
    for family in gpus.ARCHITECTURES:
        models = [gpu for name in gpus.names() if (gpu := gpus.find(name)) and gpu.architecture == family]
        assert drivers.newest_for(models) is not None
