from __future__ import annotations

import pytest

from infra.catalogue import drivers, gpus
from infra.catalogue.gpus import Gpu


def gpu(slug: str) -> Gpu:
    found = gpus.find(slug)
    assert found is not None, slug
    return found


def test_every_gpu_has_a_driver() -> None:
    for slug in gpus.names():
        one = gpu(slug)
        assert one.slug == slug
        assert one.memory_mib >= 4096
        assert one.last_driver is None or one.first_driver < one.last_driver
        newest = drivers.newest_for([one])
        assert newest is not None, slug
        assert one.runs(newest.branch)


def test_no_two_gpus_share_a_name() -> None:
    for slug in gpus.names():
        for word in (slug, gpu(slug).name, *gpu(slug).aliases):
            found = gpus.find(word)
            assert found is not None
            assert found.slug == slug, word


@pytest.mark.parametrize(
    ("slug", "architecture", "capability", "first", "last"),
    [
        ("k80", "kepler", "3.7", 340, 470),
        ("titan-x-pascal", "pascal", "6.1", 367, 580),
        ("a100-40gb", "ampere", "8.0", 450, None),
        ("b200", "blackwell", "10.0", 570, None),
    ],
)
def test_gpus(slug: str, architecture: str, capability: str, first: int, last: int | None) -> None:
    one = gpu(slug)
    assert (one.architecture, one.compute_capability) == (architecture, capability)
    assert (one.first_driver, one.last_driver) == (first, last)


def test_the_two_titan_x_are_told_apart() -> None:
    assert gpu("NVIDIA TITAN X (Pascal)").slug == "titan-x-pascal"
    assert gpu("GeForce GTX TITAN X").slug == "titan-x-maxwell"
    assert gpu("TITAN Xp").slug == "titan-xp"
    assert gpus.find("titan-y") is None


def test_classes_and_modules() -> None:
    assert [gpu(one).gpu_class for one in ("titan-x-pascal", "k80", "v100", "a10g")] == [
        "old",
        "old",
        "standard",
        "standard",
    ]
    assert [gpu(one).gpu_class for one in ("a100-40gb", "h100", "b300")] == ["new"] * 3
    assert not gpu("v100").open_kernel_modules
    assert gpu("t4").open_kernel_modules
    assert gpu("h100").proprietary_kernel_modules
    assert not gpu("b200").proprietary_kernel_modules
    assert gpu("a100-40gb").mig
    assert not gpu("a10g").mig
    assert (gpu("k80").last_cuda, gpu("v100").last_cuda, gpu("t4").last_cuda) == ("11.8", "12.9", None)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("titanx", "titan-x-pascal"),
        ("titan-x-pascl", "titan-x-pascal"),
        ("a100-40", "a100-40gb"),
        ("voodoo", ""),
    ],
)
def test_gpu_suggestions(said: str, meant: str) -> None:
    assert gpus.suggest(said) == meant


@pytest.mark.parametrize(
    ("models", "branch"),
    [
        (["k80"], 470),
        (["k520"], 367),
        (["titan-x-pascal"], 580),
        (["v100", "h100"], 580),
        (["b300"], 580),
        (["k80", "t4"], 470),
        (["k80", "h100"], None),
        ([], 580),
    ],
)
def test_the_driver_for_a_set_of_gpus(models: list[str], branch: int | None) -> None:
    found = drivers.newest_for(map(gpu, models))
    assert (found and found.branch) == branch


def test_drivers() -> None:
    assert list(drivers.names()) == sorted(drivers.names())
    for branch in drivers.names():
        found = drivers.find(branch)
        assert found is not None
        assert found.branch == branch
    assert drivers.find(571) is None
    assert drivers.suggest(571) == 570


@pytest.mark.parametrize(
    ("branch", "cuda", "runs"),
    [
        (470, "11.4", True),
        (470, "11.8", True),  # minor version compatibility
        (470, "10.2", True),
        (470, "12.0", False),
        (570, "12.8", True),
        (570, "12.10", True),
        (570, "13.0", False),
        (390, "9.2", False),  # before CUDA 11 there was none
    ],
)
def test_cuda_on_a_driver(branch: int, cuda: str, runs: bool) -> None:
    driver = drivers.find(branch)
    assert driver is not None
    assert driver.runs_cuda(cuda) is runs


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("a100", ["a100-40gb", "a100-80gb"]),
        ("NVIDIA A100", ["a100-40gb", "a100-80gb"]),
        ("v100", ["v100-16gb", "v100-32gb"]),
        ("Tesla V100", ["v100-16gb", "v100-32gb"]),
        ("a100-40gb", []),
        ("h100", []),  # one size
        ("titan-x-pascal", []),
        ("nonsense", []),
    ],
)
def test_a_name_that_means_several_sizes(name: str, sizes: list[str]) -> None:
    assert [*gpus.sizes(name)] == sizes
    for each in sizes:
        gpu = gpus.find(each)
        assert gpu is not None
        assert gpu.memory_mib // 1024 == int(each.rpartition("-")[2].removesuffix("gb"))
