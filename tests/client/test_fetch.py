"""What brings code into a pod, where no store answers. With one: ``test_run_in_cluster.py``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from web import Handler, serving

from causeway import fetch


def test_what_answers_and_is_no_store_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that refuses, say. Code 1: the run starts again, as another time the store may answer."""

    class Refuses(Handler):
        def do_GET(self) -> None:
            self.answer(403, b"not for you")

        do_POST = do_GET

    said = tmp_path / "said"
    (tmp_path / "token").write_text("x")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_DEFAULT_REGION": "us-west-2",
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/work", "CAUSEWAY_STATUS": str(said),
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    archive = {
        "CAUSEWAY_ARCHIVE": "s3://work/code/user-ada/x.tar.gz",
        "CAUSEWAY_DIGEST": "x",
        "CAUSEWAY_KEPT": "s3://work/runs/user-ada/x-1",
        "CAUSEWAY_ROLE": "worker",
    }
    with serving(Refuses) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        assert fetch.main(tmp_path / "causeway", archive) == 1
    assert "store" in json.loads(said.read_text())["reason"]
