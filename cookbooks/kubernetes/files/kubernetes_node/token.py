"""A fresh token for machines that join, put into SSM Parameter Store with the master's instance role.

Each master does so, every hour; a token lives for two. A fetched token is valid for most of an hour, also
when all masters but one are away. With it a machine may request a node's certificate, which ``approval``
approves for instances of pools that have not joined yet. kubeadm's default group would get one for any name.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kubernetes_node.command import run
from kubernetes_node.settings import Failed, Paths, Settings, read

LIFE = "2h"
GROUP = "system:bootstrappers:causeway:pools"
"""Its rights are those of infra/render/kubernetes/access.py."""


def secret(paths: Paths, settings: Settings) -> str:
    """A new token with what goes with it. JSON, which is YAML too."""
    made = run(
        "kubeadm", "token", "create", "--kubeconfig", paths.admin, "--ttl", LIFE, "--groups", GROUP,
        "--description", f"machines that join, by {settings.name}",
    )  # fmt: skip
    authority = (paths.kubernetes / "pki/ca.crt").read_text(encoding="ascii")
    said = {"token": made.strip(), "ca": authority, "endpoint": settings.endpoint}
    return json.dumps(said, indent=2) + "\n"


def put(settings: Settings, text: str) -> None:
    """Over the one before it, in each region. One that is away keeps none of the others from theirs."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    if settings.parameter is None:
        raise Failed("no parameter is named: this master hands out no tokens")
    wrong = []
    for region in (settings.region, *settings.copies):
        try:
            ssm = boto3.client("ssm", region_name=region)
            ssm.put_parameter(Name=settings.parameter, Value=text, Type="SecureString", Overwrite=True)
        except (BotoCoreError, ClientError) as problem:
            wrong.append(f"{settings.parameter} in {region}: {problem}")
    if wrong:
        raise Failed("; ".join(wrong))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="causeway-join-token", description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path("/"), help="where the system is, if not at /")
    paths = Paths(parser.parse_args(arguments).root)
    try:
        settings = read(paths)
        put(settings, secret(paths, settings))
    except (Failed, OSError) as problem:
        print(f"causeway-join-token: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
