"""Instances that are more than a record, where a program makes machines for them: see
``localaws.machines``.

They are ``pending`` until the machine answers, and tell its address as their public one; one that does not
come up ends as EC2 ends those (Amazon EC2 API Reference, "StateReason": Server.InternalError).
"""

from __future__ import annotations

import base64
from typing import Any

from moto.ec2.models import EC2Backend
from moto.ec2.models.amis import AmiBackend
from moto.ec2.models.instances import Instance, StateReason

from infra.localaws.patching import around
from localaws.machines import BODIES

_ORIGIN = "_causeway_origin"


def install() -> None:
    _life()
    _images()


def _life() -> None:
    @around(EC2Backend)
    def run_instances(original: Any, self: Any, image_id: Any, *args: Any, **kwargs: Any) -> Any:
        reservation = original(self, image_id, *args, **kwargs)
        for instance in reservation.instances:
            _start(self, instance)
        return reservation

    @around(Instance)
    def start(original: Any, self: Any) -> Any:
        before = original(self)
        if BODIES.has(self.id):
            _start(self.ec2_backend, self)
        return before

    @around(Instance)
    def stop(original: Any, self: Any) -> Any:
        before = original(self)
        if BODIES.has(self.id):
            _to(self, "stopping", 64)
            BODIES.do("stop", {"instance": self.id}, lambda *_: _to(self, "stopped", 80, "stopping"))
        return before

    @around(Instance)
    def terminate(original: Any, self: Any) -> Any:
        before = original(self)
        if before.name not in ("terminated", "shutting-down"):
            BODIES.do("terminate", {"instance": self.id}, lambda *_: None)
        return before


def _start(backend: Any, instance: Any) -> None:
    _to(instance, "pending", 0)
    invented, instance.nics[0].public_ip = instance.nics[0].public_ip, None
    image = backend.amis.get(instance.image_id)
    asked = {
        "instance": instance.id,
        "image": getattr(image, _ORIGIN, instance.image_id),
        "region": backend.region_name,
        "instance_type": instance.instance_type,
        "user_data": _text(instance.user_data),
        "public_key": _public_key(backend, instance.key_name),
        "hostname": instance.private_dns_name,
    }

    def started(answer: dict[str, Any] | None, problem: str) -> None:
        if answer is None:
            if instance.state == "pending":
                instance.terminate()
                instance._reason = "Server.InternalError"
                instance.state_reason = StateReason(
                    f"Server.InternalError: Internal error on launch: {problem}", "Server.InternalError"
                )
            return
        instance.nics[0].public_ip = answer.get("address") or invented
        _to(instance, "running", 16, "pending")

    BODIES.do("start", asked, started)


def _images() -> None:
    @around(AmiBackend)
    def create_image(original: Any, self: Any, instance_id: str, *args: Any, **kwargs: Any) -> Any:
        image = original(self, instance_id, *args, **kwargs)
        if BODIES.has(instance_id):
            image.state = "pending"

            def made(answer: dict[str, Any] | None, problem: str) -> None:
                image.state = "failed" if answer is None else "available"
                if problem:
                    image.state_reason = StateReason(problem, "Server.InternalError")

            BODIES.do("image", {"instance": instance_id, "image": image.id}, made)
        return image

    @around(AmiBackend)
    def copy_image(
        original: Any, self: Any, source_image_id: str, source_region: str, *args: Any, **kwargs: Any
    ) -> Any:
        from moto.ec2.models import ec2_backends

        image = original(self, source_image_id, source_region, *args, **kwargs)
        source = ec2_backends[self.account_id][source_region].amis[source_image_id]
        setattr(image, _ORIGIN, getattr(source, _ORIGIN, source.id))
        return image


def _to(instance: Any, name: str, code: int, only_from: str = "") -> None:
    if only_from in ("", instance._state.name):
        instance._state.name, instance._state.code = name, code


def _public_key(backend: Any, name: str | None) -> str:
    pair = backend.key_pairs.get(name)
    if pair is None:
        return ""
    public = pair.material_public
    return (public.decode() if isinstance(public, bytes) else str(public)).strip()


def _text(user_data: Any) -> str:
    if not user_data:
        return ""
    raw = user_data if isinstance(user_data, bytes) else str(user_data).encode()
    try:
        return base64.b64decode(raw, validate=True).decode("utf-8", "replace")
    except ValueError:
        return raw.decode("utf-8", "replace")
