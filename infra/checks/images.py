"""Images: drivers that support the GPUs of every machine that uses them (IMG)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from infra.catalogue import drivers, gpus, instances, roles
from infra.catalogue.gpus import Gpu
from infra.checks.facts import Facts, Use
from infra.checks.phrases import listed, meant, meant_one_of
from infra.checks.pools import meant_type
from infra.checks.registry import Finding, check
from infra.checks.sites import best_driver, driver_misfit
from infra.errors import Level
from infra.schema.pools import ImageGpu

PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+:~-]+)?")
"""Debian Policy 5.6.7, with a version as apt-get takes it."""
_AMI: Final = re.compile(r"ami-([0-9a-f]{8}|[0-9a-f]{17})")
_OWNER: Final = re.compile(r"\d{12}|amazon|aws-marketplace|self")
LEAST_ROOT_MIB: Final = 8 * 1024
"""The root volume of Canonical's server images."""


def _with_driver(facts: Facts) -> Iterator[tuple[str, ImageGpu, list[tuple[Use, Gpu]]]]:
    """Images with a known driver, and the GPUs that each must support."""
    for name, image in facts.spec.images.items():
        if image.gpu is not None and drivers.find(image.gpu.driver) is not None:
            models = [(use, use.gpu) for use in facts.uses[name] if use.gpu is not None]
            yield name, image.gpu, models


@check("IMG001", Level.ERROR, "An NVIDIA driver branch does not exist.")
def known_driver(facts: Facts) -> Iterator[Finding]:
    for name, image in facts.spec.images.items():
        if image.gpu is not None and drivers.find(image.gpu.driver) is None:
            near = drivers.suggest(image.gpu.driver)
            message = f"no NVIDIA driver branch {image.gpu.driver} is known"
            yield Finding(("images", name, "gpu", "driver"), message, meant(str(near)))


@check("IMG002", Level.ERROR, "An image's driver is too old or too new for a GPU it must run.")
def driver_runs_gpu(facts: Facts) -> Iterator[Finding]:
    for name, gpu, models in _with_driver(facts):
        misfits = [(use, model) for use, model in models if not model.runs(gpu.driver)]
        if misfits:
            use, model = misfits[0]
            message = f"{driver_misfit(model, gpu.driver)} ({use.owner}, {use.type.name})"
            hint = best_driver([model for _, model in models])
            yield Finding(("images", name, "gpu", "driver"), message, hint)


@check("IMG003", Level.ERROR, "Open kernel modules on a GPU, or with a driver, that has none.")
def open_modules(facts: Facts) -> Iterator[Finding]:
    for name, gpu, models in _with_driver(facts):
        path = ("images", name, "gpu", "open_kernel_modules")
        if not gpu.open_kernel_modules:
            continue
        if gpu.driver < drivers.OPEN_MODULES_SINCE:
            first = drivers.OPEN_MODULES_SINCE
            message = f"driver {gpu.driver} has no open kernel modules; {first} was the first"
            yield Finding(path, message, "leave it out")
            continue
        closed = [(use, model) for use, model in models if not model.open_kernel_modules]
        if closed:
            use, model = closed[0]
            message = (
                f"open kernel modules start with Turing; {model.name} ({use.owner}) is {model.architecture}"
            )
            yield Finding(path, message, "leave it out: the GPUs decide")


@check("IMG004", Level.ERROR, "Proprietary kernel modules on a GPU that runs with open ones only.")
def proprietary_modules(facts: Facts) -> Iterator[Finding]:
    for name, gpu, models in _with_driver(facts):
        new = [(use, model) for use, model in models if not model.proprietary_kernel_modules]
        if gpu.open_kernel_modules is False and new:
            use, model = new[0]
            message = f"{model.name} ({use.owner}) runs with open kernel modules only"
            yield Finding(("images", name, "gpu", "open_kernel_modules"), message, "leave it out")


@check("IMG005", Level.ERROR, "A type with NVSwitch on an image without NVIDIA Fabric Manager.")
def fabric_manager(facts: Facts) -> Iterator[Finding]:
    for name, image in facts.spec.images.items():
        switched = [use for use in facts.uses[name] if use.type.interconnect == "nvswitch"]
        if image.gpu is not None and not image.gpu.fabric_manager and switched:
            use = switched[0]
            message = (
                f"{use.type.name} ({use.owner}) has NVSwitch: without Fabric Manager CUDA does not start"
            )
            path = ("images", name, "gpu", "fabric_manager")
            yield Finding(path, message, "add 'fabric_manager: true'")


@check("IMG006", Level.WARNING, "NVIDIA Fabric Manager in an image that no type with NVSwitch uses.")
def fabric_manager_unused(facts: Facts) -> Iterator[Finding]:
    for name, gpu, _ in _with_driver(facts):
        uses = facts.uses[name]
        if gpu.fabric_manager and uses and all(use.type.interconnect != "nvswitch" for use in uses):
            types = listed(sorted({use.type.name for use in uses}))
            message = f"Fabric Manager fails to start without NVSwitch, which {types} do not have"
            yield Finding(("images", name, "gpu", "fabric_manager"), message, "take it out")


@check("IMG007", Level.ERROR, "A CUDA toolkit that is newer than what the driver runs.")
def cuda_driver(facts: Facts) -> Iterator[Finding]:
    for name, gpu, _ in _with_driver(facts):
        driver = drivers.find(gpu.driver)
        if gpu.cuda is not None and driver is not None and not driver.runs_cuda(gpu.cuda):
            able = [branch for branch in drivers.names() if _runs(branch, gpu.cuda)]
            message = f"driver {gpu.driver} runs CUDA up to {driver.cuda}, not {gpu.cuda}"
            hint = f"take driver {able[0]} or newer" if able else f"take CUDA {driver.cuda}"
            yield Finding(("images", name, "gpu", "cuda"), message, hint)


def _runs(branch: int, cuda: str) -> bool:
    found = drivers.find(branch)
    return found is not None and found.runs_cuda(cuda)


@check("IMG008", Level.ERROR, "A CUDA toolkit that no longer supports a GPU of the image.")
def cuda_gpu(facts: Facts) -> Iterator[Finding]:
    for name, gpu, models in _with_driver(facts):
        if gpu.cuda is None:
            continue
        for use, model in models:
            if model.last_cuda is not None and _numbers(gpu.cuda) > _numbers(model.last_cuda):
                message = f"CUDA {model.last_cuda} is the last for {model.name} ({use.owner}), not {gpu.cuda}"
                yield Finding(("images", name, "gpu", "cuda"), message, f"take {model.last_cuda} or older")
                break


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@check("IMG009", Level.ERROR, "A fraction of a GPU needs NVIDIA's vGPU driver, not a data centre's.")
def fractions(facts: Facts) -> Iterator[Finding]:
    for _, _, models in _with_driver(facts):
        for use, _ in models:
            if use.type.gpus is not None and use.type.gpus.share < 1:
                message = f"{use.type.name} has a part of a GPU, which only NVIDIA's vGPU driver runs"
                yield Finding(use.path, message, "take a type with whole GPUs")


@check("IMG010", Level.ERROR, "The instance type that an image is baked on does not exist, or does not fit.")
def build_type(facts: Facts) -> Iterator[Finding]:
    for name, image in facts.spec.images.items():
        if image.build_type is None:
            continue
        path, found = ("images", name, "build_type"), instances.find(image.build_type)
        if found is None:
            message = f"{image.build_type} is not an EC2 instance type"
            yield Finding(path, message, meant_type(image.build_type))
        elif image.architecture not in found.architectures:
            message = (
                f"{found.name} is {' and '.join(found.architectures)}, the image is {image.architecture}"
            )
            yield Finding(path, message, "leave it out: one is chosen")


@check("IMG011", Level.ERROR, "An image has an id at a site that is not a region of the spec.")
def id_site(facts: Facts) -> Iterator[Finding]:
    for name, image in facts.spec.images.items():
        for site in image.ids:
            if site not in facts.places:
                message = f"{site} is not an AWS site of this spec"
                yield Finding(("images", name, "ids", site), message, meant_one_of(site, facts.places))


@check("IMG012", Level.ERROR, "The id of an image is invalid.")
def id_form(facts: Facts) -> Iterator[Finding]:
    for name, image in facts.spec.images.items():
        for site, ami in image.ids.items():
            if not _AMI.fullmatch(ami):
                path = ("images", name, "ids", site)
                yield Finding(path, f"{ami!r} is not an AMI id", "as in ami-0abc1234def567890")


@check("IMG013", Level.ERROR, "An image's root disk is smaller than its base image.")
def root_disk(facts: Facts) -> Iterator[Finding]:
    for name, image in facts.spec.images.items():
        if image.root_disk < LEAST_ROOT_MIB:
            message = "Canonical's images have a root disk of 8 GiB"
            yield Finding(("images", name, "root_disk"), message, "make it 8 GiB or larger")


@check("IMG014", Level.ERROR, "The account that publishes an image is invalid.")
def source_owner(facts: Facts) -> Iterator[Finding]:
    for name, image in facts.spec.images.items():
        if image.source.owner is not None and not _OWNER.fullmatch(image.source.owner):
            message = f"{image.source.owner!r} is not an account"
            hint = "twelve digits, amazon, aws-marketplace or self; left out: Canonical"
            yield Finding(("images", name, "source", "owner"), message, hint)


@check("IMG015", Level.ERROR, "A package's name is not valid in Debian.")
def packages(facts: Facts) -> Iterator[Finding]:
    for name, image in facts.spec.images.items():
        for index, package in enumerate(image.packages):
            if not PACKAGE.fullmatch(package):
                path = ("images", name, "packages", index)
                message = f"{package!r} is not the name of a Debian package"
                yield Finding(path, message, "as apt-get takes it: htop, or htop=3.3.0-4")


@check("IMG016", Level.ERROR, "An image has a role that does not exist.", waivable=False)
def known_role(facts: Facts) -> Iterator[Finding]:
    known = [*roles.roles(), *(roles.family_role(family) for family in gpus.ARCHITECTURES)]
    for name, image in facts.spec.images.items():
        for index, role in enumerate(image.roles):
            if role not in known:
                hint = meant_one_of(role, known)
                yield Finding(("images", name, "roles", index), f"role {role} not found", hint)


@check("IMG017", Level.ERROR, "An image has the role of GPU nodes but no GPU software.")
def role_without_driver(facts: Facts) -> Iterator[Finding]:
    for name, image in facts.spec.images.items():
        for index, role in enumerate(image.roles):
            if image.gpu is None and (role == roles.GPU_WORKER or roles.family_of(role)):
                message = f"{role} installs a driver, and it is not said which"
                yield Finding(("images", name, "roles", index), message, "add 'gpu:', or take 'worker'")
