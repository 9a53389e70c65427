"""A stand-in for boto3 with one bucket: a folder that all masters share."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path("/srv/bucket")


class Client:
    def upload_file(self, file: str, bucket: str, key: str, ExtraArgs: dict[str, Any]) -> None:
        path = FOLDER / bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, path)
        path.with_name(f"{path.name}.about").write_text(json.dumps(ExtraArgs.get("Metadata", {})))

    def download_file(self, bucket: str, key: str, file: str) -> None:
        shutil.copyfile(FOLDER / bucket / key, file)

    def head_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        path = FOLDER / Bucket / Key
        return {"Metadata": json.loads(path.with_name(f"{path.name}.about").read_text())}

    def get_paginator(self, _name: str) -> Client:
        return self

    def paginate(self, Bucket: str, Prefix: str) -> Iterator[dict[str, Any]]:
        files = [each for each in (FOLDER / Bucket).rglob("*") if each.is_file() and each.suffix != ".about"]
        keys = [(str(each.relative_to(FOLDER / Bucket)), each.stat().st_size) for each in files]
        yield {"Contents": [{"Key": key, "Size": size} for key, size in keys if key.startswith(Prefix)]}


def client(_name: str, **_: Any) -> Client:
    return Client()
