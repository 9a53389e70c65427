"""What a machine needs to join, fetched from SSM Parameter Store with its instance role.

    causeway-join-fetch [--wait SECONDS] --region REGION PARAMETER FILE

FILE is written with mode 0600, and only ever whole. Ends with 75 (EX_TEMPFAIL, sysexits.h) when there was
none for so long, or the store was away: another attempt may do.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

TEMPFAIL = 75
PAUSE = 5.0
"""At least so long between attempts, and up to four times as long: hundreds of nodes start in one minute, and
Parameter Store answers 40 questions a second (SSM quotas, GetParameter)."""


def attempt(ssm: Any, parameter: str) -> tuple[str | None, str]:
    """The secret, or None and why there is none. What will not change by waiting is raised."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return ssm.get_parameter(Name=parameter, WithDecryption=True)["Parameter"]["Value"], ""
    except ssm.exceptions.ParameterNotFound:
        return (
            None,
            f"{parameter} is not in the store yet: the cluster has no masters, or they hand out no tokens",
        )
    except ClientError as problem:
        # A role that was made a moment ago takes some seconds until AWS lets it do what it may.
        return None, str(problem)
    except BotoCoreError as problem:
        return None, str(problem)


def keep(text: str, file: Path) -> None:
    """The file, for root alone."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    fresh.replace(file)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="causeway-join-fetch", description=__doc__.splitlines()[0])
    parser.add_argument("--wait", type=float, default=0, metavar="SECONDS", help="how long to try again")
    parser.add_argument("--region", required=True, help="the AWS region of the store")
    parser.add_argument("parameter")
    parser.add_argument("file", type=Path)
    asked = parser.parse_args(arguments)

    import boto3
    from botocore.config import Config

    config = Config(connect_timeout=5, read_timeout=10, retries={"max_attempts": 2})
    ssm = boto3.client("ssm", region_name=asked.region, config=config)
    last = time.monotonic() + asked.wait
    said = ""
    while True:
        text, why = attempt(ssm, asked.parameter)
        if text is not None:
            keep(text, asked.file)
            return 0
        if why != said:
            print(f"causeway-join-fetch: {why}", file=sys.stderr, flush=True)
            said = why
        if time.monotonic() + PAUSE > last:
            return TEMPFAIL
        time.sleep(random.uniform(PAUSE, 4 * PAUSE))  # noqa: S311  nothing is kept secret by it


if __name__ == "__main__":
    raise SystemExit(main())
