"""A call that is sent again is not made again."""

from __future__ import annotations

from typing import Any

from infra.localaws.replies import Replies


class Cloud:
    """Counts what it is asked."""

    def __init__(self, status: str = "200 OK") -> None:
        self.calls = 0
        self.status = status

    def __call__(self, _: Any, start_response: Any) -> list[bytes]:
        self.calls += 1
        start_response(self.status, [("X-Call", str(self.calls))])
        return [f"subnet {self.calls}".encode()]


def ask(replies: Replies, cloud: Cloud, invocation: str) -> tuple[bytes, list[tuple[str, str]]]:
    heard: list[Any] = []
    environ = {"HTTP_AMZ_SDK_INVOCATION_ID": invocation} if invocation else {}
    body = replies.once(cloud, environ, lambda *said: heard.append(said))
    return b"".join(body), heard[0][1]


def test_a_repeated_call_gets_the_first_reply() -> None:
    replies, cloud = Replies(), Cloud()
    assert ask(replies, cloud, "a") == ask(replies, cloud, "a") == (b"subnet 1", [("X-Call", "1")])
    assert ask(replies, cloud, "b")[0] == b"subnet 2"


def test_what_was_refused_may_be_tried_again() -> None:
    replies, cloud = Replies(), Cloud("503 Slow Down")
    ask(replies, cloud, "a")
    ask(replies, cloud, "a")
    assert cloud.calls == 2


def test_calls_without_an_id_are_all_made() -> None:
    replies, cloud = Replies(), Cloud()
    ask(replies, cloud, "")
    assert ask(replies, cloud, "")[0] == b"subnet 2"


def test_only_so_many_are_kept() -> None:
    replies, cloud = Replies(), Cloud()
    for number in range(600):
        ask(replies, cloud, str(number))
    ask(replies, cloud, "0")
    assert cloud.calls == 601
