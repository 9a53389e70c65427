"""Notices reach Slack and a webhook, once each, and hold nothing up when they don't."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from autoscaler import make
from web import Handler, serving

from infra.autoscaler.decision import Decision, Notice
from infra.autoscaler.loop import Cycle
from infra.autoscaler.memory import Memory
from infra.autoscaler.reporting import deduplication, notices
from infra.render.kubernetes import autoscaler as rendered

NOW = make.NOW
LATE = Notice("backoff/gpu", "warning", "no capacity: <p3>&")
TOKEN = "xoxb-0-made-up"
PATH = "/services/T0/B0/made-up"


class Place:
    """A server that remembers what it was sent, and answers in turn what it is told to."""

    def __init__(self) -> None:
        self.heard: Queue[tuple[str, dict[str, str], Any]] = Queue()
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.url = ""

    def handler(self) -> type[Handler]:
        place = self

        class Answers(Handler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                place.heard.put((self.path, dict(self.headers), body))
                code, headers, data = place.answers.pop(0) if place.answers else (200, {}, b'{"ok": true}')
                self.answer(code, data, **headers)

        return Answers


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    with serving(place.handler()) as port:
        place.url = f"http://127.0.0.1:{port}"
        yield place


Make = Callable[..., notices.Notifier]


@pytest.fixture
def make_notifier(place: Place, tmp_path: Path) -> Iterator[Make]:
    (tmp_path / "slack").write_text(f"{TOKEN}\n")
    (tmp_path / "webhook").write_text(f"{place.url}{PATH}")
    made: list[notices.Notifier] = []

    def one(**settings: Any) -> notices.Notifier:
        config = make.config(**settings)
        made.append(notices.Notifier(config, tmp_path, slack=f"{place.url}/api", pauses=(0.01, 0.01)))
        return made[-1]

    yield one
    for each in made:
        each.close()


def cycle(*said: Notice, dry: bool = False) -> Cycle:
    return Cycle(at=NOW, dry=dry, decision=Decision(at=NOW, actions=(), memory=Memory(), notices=said))


def test_slack_gets_a_message_with_the_token_in_its_place(make_notifier: Make, place: Place) -> None:
    make_notifier(slack="#ops")(cycle(LATE))
    path, headers, body = place.heard.get(timeout=5)
    assert path == "/api"
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert body["channel"] == "ops"
    assert body["text"].endswith("&lt;p3&gt;&amp;")


def test_a_webhook_gets_words_and_facts(make_notifier: Make, place: Place) -> None:
    make_notifier(webhook=True)(cycle(LATE, dry=True))
    path, headers, body = place.heard.get(timeout=5)
    assert path == PATH
    assert "Authorization" not in headers
    assert "(dry run)" in body["text"]
    assert body["notices"] == [
        {"key": LATE.key, "level": "warning", "text": LATE.text, "dry_run": True},
    ]


def test_who_does_not_answer_is_asked_again(make_notifier: Make, place: Place) -> None:
    place.answers = [
        (503, {}, b""),
        (429, {"Retry-After": "0"}, b""),
    ]
    make_notifier(webhook=True)(cycle(LATE))
    for _ in range(3):
        assert place.heard.get(timeout=5)[2]["notices"][0]["key"] == LATE.key


def test_what_can_not_be_delivered_is_dropped_and_said_without_secrets(
    make_notifier: Make, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.answers = [(200, {}, b'{"ok": false, "error": "invalid_auth"}')]
    notifier = make_notifier(slack="ops")
    with caplog.at_level(logging.INFO):
        notifier(cycle(LATE))
        place.heard.get(timeout=5)
        notifier.close()
    assert "invalid_auth" in caplog.text
    assert TOKEN not in caplog.text
    assert place.heard.empty(), "a wrong token is no matter of patience"


def test_an_address_where_nobody_is_holds_nothing_up_and_stays_secret(
    make_notifier: Make, place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "webhook").write_text(f"http://127.0.0.1:1{PATH}")
    notifier = make_notifier(webhook=True, slack="ops")
    with caplog.at_level(logging.INFO):
        notifier(cycle(LATE))
        assert place.heard.get(timeout=5)[0] == "/api", "Slack hears of it all the same"
        notifier.close()
    assert "webhook" in caplog.text
    assert "made-up" not in caplog.text


def test_a_secret_that_is_missing_is_said(
    make_notifier: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "slack").unlink()
    notifier = make_notifier(slack="ops")
    notifier(cycle(LATE))
    notifier.close()
    assert "secret slack" in caplog.text


def test_a_flood_is_dropped_rather_than_kept(make_notifier: Make, caplog: pytest.LogCaptureFixture) -> None:
    notifier = make_notifier(webhook=True)
    notifier(cycle(*(Notice(f"n{number}", "info", "x") for number in range(2000))))
    assert 0 < len(caplog.records) < 2000


def test_36_a_notice_is_said_once_and_again_after_a_day() -> None:
    told: dict[str, float] = {}
    sent = []
    for at in range(0, 3 * 86400, 3600):
        news, told = deduplication.unsent([LATE, LATE], told, NOW + at)
        sent += [at] * len(news)
    assert sent == [0, 86400, 2 * 86400]


def test_what_is_remembered_of_notices_does_not_grow() -> None:
    told: dict[str, float] = {}
    for at in range(0, 10 * 86400, 3600):
        _, told = deduplication.unsent([Notice(f"at-{at}", "info", "x")], told, NOW + at)
    assert len(told) == 24


def test_the_deployment_mounts_the_secrets_where_they_are_read() -> None:
    assert str(notices.FOLDER) == f"{rendered._FOLDER}/notices"
