"""The encrypted file: who may read it, and what is said when it does not open."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from infra.drive.secrets import SecretsError, Store, open_store
from infra.model.cluster import Secrets

LOCAL = Secrets("local", "", "")
VALUE = "s3cret-Value.that_must-not-show"


def text_of_a_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


class Place:
    """A project's folder and a user's home."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "project" / ".secrets"
        self.file = self.folder / "lab.json"
        self.key = root / "home" / "causeway" / "lab.key"
        self.env = {"XDG_CONFIG_HOME": str(root / "home")}

    def store(self, environment: str = "lab", **env: str) -> Store:
        return open_store(LOCAL, environment, self.folder, {**self.env, **env})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nothing_is_made_before_the_first_secret(place: Place) -> None:
    store = place.store()
    assert store.get("one") is None
    assert store.names() == ()
    assert not store.delete("one")
    assert not place.folder.exists()
    assert not place.key.exists()


def test_only_the_user_may_read_and_git_looks_away(place: Place) -> None:
    before = os.umask(0)
    try:
        place.store().put("one", VALUE)
        place.store().put("two", VALUE)
    finally:
        os.umask(before)
    assert mode(place.file) == mode(place.key) == 0o600
    assert mode(place.folder) == mode(place.key.parent) == 0o700
    subprocess.run(["git", "init", "-q", str(place.folder.parent)], check=True)
    seen = subprocess.run(
        ["git", "-C", str(place.folder.parent), "status", "--porcelain", "-uall"],
        check=True,
        capture_output=True,
    )
    assert seen.stdout == b""


def test_the_file_tells_nothing(place: Place) -> None:
    place.store().put("one", VALUE)
    first = place.file.read_text()
    assert VALUE not in first
    assert VALUE not in base64.b64decode(json.loads(first)["secrets"]["one"]).decode("latin-1")
    assert place.key.read_text().strip() not in first
    place.store().put("one", VALUE)
    assert place.file.read_text() != first  # each time another nonce


def test_the_key_may_come_from_the_environment(place: Place) -> None:
    key = text_of_a_key()
    place.store(CAUSEWAY_SECRETS_KEY=key).put("one", VALUE)
    assert not place.key.exists()
    assert place.store(CAUSEWAY_SECRETS_KEY=f"  {key}\n").get("one") == VALUE
    assert place.store(CAUSEWAY_SECRETS_KEY=key.replace("+", "-").replace("/", "_")).get("one") == VALUE


def test_a_lost_key(place: Place) -> None:
    place.store().put("one", VALUE)
    assert place.store(CAUSEWAY_SECRETS_KEY=place.key.read_text()).get("one") == VALUE
    place.key.unlink()
    with pytest.raises(SecretsError, match=str(place.key)):
        place.store().get("one")
    with pytest.raises(SecretsError, match=str(place.key)):
        place.store().put("two", VALUE)
    assert not place.key.exists()  # a new key would hide that the old one is lost


def test_another_key(place: Place) -> None:
    place.store().put("one", VALUE)
    before, other = place.file.read_bytes(), text_of_a_key()
    store = place.store(CAUSEWAY_SECRETS_KEY=other)
    with pytest.raises(SecretsError, match=r"another key .*\w{12}\)") as caught:
        store.get("one")
    assert other not in str(caught.value)
    with pytest.raises(SecretsError, match="another key"):
        store.put("one", VALUE)
    assert place.file.read_bytes() == before


@pytest.mark.parametrize("text", ["hunter2", "äöü", base64.b64encode(b"x" * 31).decode(), "A" * 45])
def test_what_is_no_key_is_not_quoted(place: Place, text: str) -> None:
    with pytest.raises(SecretsError, match="CAUSEWAY_SECRETS_KEY: ") as caught:
        place.store(CAUSEWAY_SECRETS_KEY=text).put("one", VALUE)
    assert text not in str(caught.value)
    place.key.parent.mkdir(parents=True)
    place.key.write_text(text)
    place.key.chmod(0o600)
    with pytest.raises(SecretsError, match=r"lab\.key: ") as caught:
        place.store().put("one", VALUE)
    assert text not in str(caught.value)


def test_a_key_that_others_may_read(place: Place) -> None:
    place.store().put("one", VALUE)
    place.key.chmod(0o640)
    with pytest.raises(SecretsError, match=r"0640.*chmod 600 .*lab\.key"):
        place.store().get("one")


def test_a_value_can_stand_in_for_no_other_and_each_bit_counts(place: Place) -> None:
    place.store().put("one", VALUE)
    place.store().put("two", "other")
    document = json.loads(place.file.read_text())
    sealed = base64.b64decode(document["secrets"]["one"])
    flipped = [sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :] for at in (0, 12, len(sealed) - 1)]
    spoiled = [base64.b64encode(data).decode() for data in (sealed, *flipped, b"", b"\0\0\0", b"\0" * 15)]
    for entry in (*spoiled, "not base64!"):
        document["secrets"]["two"] = entry
        place.file.write_text(json.dumps(document))
        with pytest.raises(SecretsError, match="secret two"):
            place.store().get("two")
        assert place.store().get("one") == VALUE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 1}',
        '{"version": 1, "environment": "lab", "key": "x", "secrets": {"one": 1}}',
        '{"version": 1, "environment": "lab", "key": "x", "secrets": []}',
        "\x00\x01",
    ],
)
def test_a_damaged_file_is_never_written_over(place: Place, text: str) -> None:
    place.store().put("one", VALUE)
    place.file.write_text(text)
    for attempt in (
        lambda: place.store().get("one"),
        lambda: place.store().put("one", VALUE),
        lambda: place.store().add({"two": VALUE}),
        lambda: place.store().names(),
        lambda: place.store().delete("one"),
    ):
        with pytest.raises(SecretsError, match=r"lab\.json: "):
            attempt()
    assert place.file.read_text() == text


@pytest.mark.parametrize("other", [{"version": 2}, {"environment": "other"}])
def test_a_file_of_another_version_or_environment(place: Place, other: dict[str, object]) -> None:
    place.store().put("one", VALUE)
    place.file.write_text(json.dumps(json.loads(place.file.read_text()) | other))
    with pytest.raises(SecretsError, match="lab"):
        place.store().get("one")


def test_a_failed_write_changes_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.store().put("one", VALUE)
    before = place.file.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(SecretsError, match="No space"):
            place.store().put("two", VALUE)
    assert place.file.read_bytes() == before
    place.store().put("two", VALUE)
    assert place.store().names() == ("one", "two")


def test_a_killed_write_leaves_the_old_file(place: Place) -> None:
    place.store().put("one", VALUE)
    script = (
        "import os, sys; from pathlib import Path; from infra.drive.secrets import open_store\n"
        "from infra.model.cluster import Secrets\n"
        "os.fsync = lambda _: os._exit(9)\n"
        "open_store(Secrets('local', '', ''), 'lab', Path(sys.argv[1]), dict(os.environ)).put('one', 'new')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(place.folder)], env={**os.environ, **place.env}, check=False
    )
    assert ended.returncode == 9
    assert place.store().get("one") == VALUE
    place.store().put("one", "later")
    assert place.store().get("one") == "later"
    assert sorted(path.name for path in place.folder.glob("*.new")) == []


def test_processes_that_start_at_once_share_one_key(place: Place) -> None:
    script = (
        "import os, sys; from pathlib import Path\n"
        "from infra.drive.secrets import ensure, open_store, tunnel_key\n"
        "from infra.model.cluster import Secrets\n"
        "store = open_store(Secrets('local', '', ''), 'lab', Path(sys.argv[1]), dict(os.environ))\n"
        "print(sorted(ensure(store, [f'vpn/{n}' for n in range(10)], tunnel_key).items()))\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(place.folder)],
            env={**os.environ, **place.env},
            stdout=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    answers = {process.communicate()[0] for process in running}
    assert all(process.returncode == 0 for process in running)
    assert len(answers) == 1


def test_a_home_that_can_not_be_written(place: Place) -> None:
    Path(place.env["XDG_CONFIG_HOME"]).write_text("a file, not a folder")
    with pytest.raises(SecretsError, match="CAUSEWAY_SECRETS_KEY"):
        place.store().put("one", VALUE)


def test_a_store_behind_a_link_stays_there(place: Place, tmp_path: Path) -> None:
    real = tmp_path / "backed-up.json"
    place.store().put("one", VALUE)
    place.file.rename(real)
    place.file.symlink_to(real)
    place.store().put("two", VALUE)
    assert place.file.is_symlink()
    assert set(json.loads(real.read_text())["secrets"]) == {"one", "two"}


def test_without_xdg_the_key_is_in_the_users_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from infra.drive.secrets.keyfile import path_of

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    path = path_of("lab", {})
    assert path.is_relative_to(tmp_path)
    assert path.parts[-2:] == ("causeway", "lab.key")
