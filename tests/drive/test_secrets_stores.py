"""What every store does, held against both: the encrypted file, and Parameter Store spoken to over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.drive.aws import Aws
from infra.drive.secrets import SecretsError, Store, ensure, open_store
from infra.model.cluster import Secrets

VALUE = "s3cret-Value.that_must-not-show"
Opener = Callable[[], Store]


@pytest.fixture
def opener(secrets_opener: Opener) -> Opener:
    return secrets_opener


def test_the_next_command_finds_what_is_put_and_not_what_is_deleted(opener: Opener) -> None:
    assert opener().get("vpn/b/2") is None
    assert not opener().delete("vpn/b/2")
    assert opener().names() == ()
    for name in ("vpn/b/2", "vpn/b/1", "vpn/a/1", "pki/root"):
        opener().put(name, VALUE)
    assert opener().names() == ("pki/root", "vpn/a/1", "vpn/b/1", "vpn/b/2")
    assert opener().names("vpn/b") == ("vpn/b/1", "vpn/b/2")
    opener().put("pki/root", "Grüße ${x} \n 'end'")
    assert opener().get("pki/root") == "Grüße ${x} \n 'end'"
    assert opener().delete("pki/root")
    assert not opener().delete("pki/root")
    assert opener().names("pki") == ()


def test_many_are_read_at_once(opener: Opener) -> None:
    values = {f"vpn/link-{number}/1": f"value {number}" for number in range(23)}
    assert opener().add(values) == set(values)
    assert opener().read([*values, "missing"]) == values
    assert opener().read([]) == {}
    assert len(opener().names()) == 23


def test_add_never_takes_the_place_of_another(opener: Opener) -> None:
    assert opener().add({"one": "first"}) == {"one"}
    assert opener().add({"one": "second", "two": "second"}) == {"two"}
    assert opener().read(["one", "two"]) == {"one": "first", "two": "second"}
    assert opener().add({}) == frozenset()


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a b", "ä", "a/" * 12 + "a", "a" * 600])
def test_a_name_that_a_store_could_not_hold_is_refused_by_all(opener: Opener, name: str) -> None:
    with pytest.raises(SecretsError, match="name"):
        opener().put(name, VALUE)


@pytest.mark.parametrize("value", ["", "x" * 8193, "ä" * 4097])
def test_a_value_that_a_store_could_not_hold_is_refused_by_all(opener: Opener, value: str) -> None:
    with pytest.raises(SecretsError, match=r"one has [\d,]+ "):
        opener().put("one", value)
    opener().put("one", "x" * 8192)
    assert opener().get("one") == "x" * 8192


def test_what_is_missing_is_made_once(opener: Opener) -> None:
    made = iter(range(100))
    opener().put("b", "kept")
    first = ensure(opener(), ["a", "b", "a", "c"], lambda: f"made {next(made)}")
    assert first == {"a": "made 0", "b": "kept", "c": "made 1"}
    assert ensure(opener(), ["c", "b", "a"], lambda: "not made") == first


def test_all_who_come_at_once_end_with_the_same(opener: Opener) -> None:
    names = [f"n{number}" for number in range(5)]

    def one(worker: int) -> dict[str, str]:
        return ensure(opener(), names, lambda: f"by {worker}")

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(one, range(8)))
    assert all(result == results[0] for result in results)
    assert opener().read(names) == results[0]


def test_a_value_is_in_no_log_and_no_text(opener: Opener, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "botocore"):
        store = opener()
        store.put("one", VALUE)
        assert store.add({"one": VALUE + "2"}) == frozenset()
        assert store.get("one") == VALUE
        store.names()
        assert logging.getLogger("botocore").level == logging.DEBUG, "left as it was"
    assert VALUE not in caplog.text + str(store) + repr(store) + repr(vars(store))


def test_an_error_of_aws_is_told_without_what_was_sent(
    aws_env: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(Secrets("ssm", "/aws/no", "us-west-2"), "lab", tmp_path, aws_env)
    with pytest.raises(SecretsError, match="/aws/no ") as caught:
        store.put("one", VALUE)
    assert VALUE not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_denied_call_names_the_permissions(
    aws_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import botocore.client
    from botocore.exceptions import ClientError

    def deny(self: object, operation: str, parameters: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": VALUE}}, operation)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", deny)
    store = open_store(Secrets("ssm", "/causeway/lab", "us-west-2"), "lab", tmp_path, aws_env)
    with pytest.raises(SecretsError, match="ssm:PutParameter") as caught:
        store.put("one", VALUE)
    assert VALUE not in str(caught.value)


def test_parameters_are_encrypted_by_aws(aws_env: dict[str, str], tmp_path: Path) -> None:
    open_store(Secrets("ssm", "/causeway/typed/", "eu-west-1"), "lab", tmp_path, aws_env).put("a/b", VALUE)
    client = Aws(aws_env).client("ssm", "eu-west-1")
    kept = client.get_parameter(Name="/causeway/typed/a/b", WithDecryption=False)["Parameter"]
    assert kept["Type"] == "SecureString"
    assert kept["Value"] != VALUE
