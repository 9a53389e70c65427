"""When the revocation lists of VPN servers end, and what their machines say of it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest
from drive.pki.pki_lab import PASSPHRASE, Clock
from stores import local_store

from infra.drive.pki import Pki, crl_ends, encryption
from infra.drive.secrets.local import LocalStore
from infra.drive.vpn import revocations
from infra.errors import DriveError

SCRIPT = Path(__file__).parents[3] / "templates/openvpn/static/usr/local/sbin/remote-access"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.setattr(encryption, "COST", 4)
    return local_store(tmp_path, "lab")


def tree(folder: Path, store: LocalStore, now: datetime) -> Path:
    """A server's, with a list as it is at a time."""
    clock = Clock()
    clock.now = now
    pki = Pki(store, domain="lab.internal", clock=clock)
    if not pki.exists():
        pki.create(PASSPHRASE, "lab")
    file = folder / revocations.LIST
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(pki.crl(), encoding="ascii")
    return folder


def test_what_was_brought_is_recorded_for_everybody_who_shares_the_store(
    tmp_path: Path, store: LocalStore
) -> None:
    now = datetime(2031, 1, 1, 12, tzinfo=UTC)
    built = tree(tmp_path / "rack", store, now)
    assert revocations.recorded(store, ["rack", "us-west-2"]) == {}
    revocations.record(store, "rack", built)
    ends = crl_ends((built / revocations.LIST).read_text())
    assert revocations.recorded(store, ["rack", "us-west-2"]) == {"rack": ends}
    revocations.record(store, "rack", tree(tmp_path / "rack", store, now + timedelta(days=40)))
    assert revocations.recorded(store, ["rack"])["rack"] > ends


def test_a_record_that_is_no_time_is_as_none(tmp_path: Path, store: LocalStore) -> None:
    store.put("access/rack/crl-ends", "soon")
    assert revocations.recorded(store, ["rack"]) == {}


def test_a_server_without_a_list() -> None:
    machine = MagicMock()
    machine.name, machine.run.return_value = "vpn.lab.internal", ""
    with pytest.raises(DriveError, match=r"vpn\.lab\.internal: .*crl\.pem"):
        revocations.on_server(machine)


@pytest.fixture
def remote_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("remote_access", str(SCRIPT))
    spec = importlib.util.spec_from_loader("remote_access", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(module, "SETTINGS", (tmp_path / revocations.LIST).parent)
    return module


@pytest.mark.parametrize(("age", "left"), [(0, 90), (68, 22), (70, 20), (95, -5)])
def test_a_servers_own_check_fails_before_nobody_comes_in(
    remote_access: ModuleType, tmp_path: Path, store: LocalStore, age: int, left: int
) -> None:
    """Real OpenSSL reads a list that was brought ``age`` days ago."""
    tree(tmp_path, store, datetime.now(UTC) - timedelta(days=age) + timedelta(minutes=10))
    if left >= remote_access.LIST_DAYS:
        remote_access.check_list()
    else:
        with pytest.raises(remote_access.RemoteAccessError, match=f"ends in {left} days"):
            remote_access.check_list()


def test_a_servers_own_check_fails_without_a_list(remote_access: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / revocations.LIST
    file.parent.mkdir(parents=True)
    file.write_text("", encoding="ascii")
    with pytest.raises(remote_access.RemoteAccessError):
        remote_access.check_list()
