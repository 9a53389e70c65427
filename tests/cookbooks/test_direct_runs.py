"""What the cookbook ``direct_runs`` writes, as the kernel applies it, and for whom."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cookbooks.kitchen import Ask, RenderErb, Tool, run

TEMPLATE = "machine.nft.erb"
LISTEN = """
import socket, time
listeners = [socket.create_server(("", port)) for port in (22, 4000)]
open("ready", "a").write("one ")
time.sleep(60)
"""
TRY = """
import socket
for source, target in (("10.0.0.2", "10.0.0.1"), ("192.0.2.2", "192.0.2.1")):
    for port in (22, 4000):
        try:
            socket.create_connection((target, port), timeout=1, source_address=(source, 0)).close()
        except TimeoutError:
            continue
        print(target, port)
"""
WORLD = """
ip link set lo up
ip link add outside type veth peer name eth0
unshare --net sleep 60 & other=$!
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link set outside netns $other
there() { nsenter --net=/proc/$other/ns/net "$@"; }
for each in 10.0.0 192.0.2; do
  ip address add $each.1/24 dev eth0
  there ip address add $each.2/24 dev outside
done
ip link set eth0 up
there ip link set outside up
nft --file machine.nft
nft --file machine.nft  # as a reload does
python3 -c "$1" &
there python3 -c "$1" &
until [ "$(cat ready)" = "one one " ]; do sleep 0.05; done
there python3 -c "$2"
python3 -c 'import socket; socket.create_connection(("192.0.2.2", 4000), timeout=5); print("out")'
"""
"""Ends with its first process: it has a PID namespace."""


def test_ssh_comes_in_from_anywhere_and_the_private_network_to_every_port(
    render_erb: RenderErb, tool: Tool, tmp_path: Path
) -> None:
    for command, package in (("nft", "nftables"), ("ip", "iproute2"), ("nsenter", "util-linux")):
        tool(command, package)
    if os.geteuid():
        pytest.skip("needs root")
    table = render_erb("direct_runs", TEMPLATE, variables={"inside": ["10.0.0.0/8"]})
    (tmp_path / "machine.nft").write_text(table)
    (tmp_path / "ready").touch()
    done = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--mount-proc", "sh", "-euc", WORLD, "sh", LISTEN, TRY],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["10.0.0.1 22", "10.0.0.1 4000", "192.0.2.1 22", "out"]


def test_without_a_private_network_it_is_a_table_all_the_same(
    render_erb: RenderErb, tool: Tool, tmp_path: Path
) -> None:
    table = tmp_path / "machine.nft"
    table.write_text(render_erb("direct_runs", TEMPLATE, variables={"inside": []}))
    run("unshare", "--net", "--map-root-user", tool("nft", "nftables"), "--check", "--file", table)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [([], ["ada", "grace"]), (["researchers"], ["ada"]), (["researchers", "gone", "root"], ["ada"])],
)
def test_who_may_log_in_lingers(ask: Ask, wanted: list[str], expected: list[str]) -> None:
    people: list[dict[str, Any]] = [{"id": "grace"}, {"id": "ada"}, {"id": "alan", "action": "remove"}]
    groups = [
        {"id": "researchers", "members": ["ada", "alan", "nobody"]},
        {"id": "others", "members": ["grace"]},
        {"id": "gone", "action": "remove", "members": ["grace"]},
    ]
    names = ask(
        "base",
        "Causeway::People.who_log_in(wanted, groups, people)",
        wanted=wanted,
        groups=groups,
        people=people,
    )
    assert names == expected
