"""What the cookbook ``base`` writes, as the tools that read it see it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cookbooks.kitchen import COOKBOOKS, Ask, RenderErb, Tool, run

NODE = {"causeway": {"name": "titan-01", "fqdn": "titan-01.lab.internal", "address": "10.200.0.11"}}


@pytest.fixture
def sshd(tool: Tool, tmp_path: Path) -> list[str | Path]:
    """The command that reads a configuration, with a host key of its own."""
    command = tool("sshd", "openssh-server")
    if not Path("/run/sshd").is_dir():
        if os.geteuid() != 0:
            pytest.skip("/run/sshd is not here, and only root can make it")
        Path("/run/sshd").mkdir(mode=0o755)
    key = tmp_path / "key"
    run(tool("ssh-keygen", "openssh-client"), "-q", "-t", "ed25519", "-N", "", "-f", key)
    return [command, "-h", key]


def test_sshd(render_erb: RenderErb, sshd: list[str | Path], tmp_path: Path) -> None:
    config = tmp_path / "sshd.conf"
    config.write_text(render_erb("base", "sshd.conf.erb", NODE, {"groups": ["engineers", "root", "sudo"]}))
    output = run(*sshd, "-T", "-f", config).splitlines()
    for line in (
        "passwordauthentication no",
        "kbdinteractiveauthentication no",
        "permitrootlogin without-password",
        "x11forwarding no",
    ):
        assert line in output
    [keys] = [line.split()[1:] for line in output if line.startswith("authorizedkeysfile")]
    assert keys == [
        "/etc/ssh/authorized_keys.d/%u",
        "/etc/ssh/authorized_keys.own/%u",
        ".ssh/authorized_keys",
    ]
    assert [line for line in output if line.startswith("allowgroups")] == [
        "allowgroups engineers",
        "allowgroups root",
        "allowgroups sudo",
    ]
    weak = ("cbc", "hmac-sha1", "hmac-md5", "group1-", "group14-sha1", "ssh-rsa,", "3des")
    algorithms = [
        line for line in output if line.startswith(("ciphers", "macs", "kexalgorithms", "hostkeyalg"))
    ]
    assert len(algorithms) == 4
    assert [line for line in algorithms if any(each in line for each in weak)] == []


def test_sshd_lets_everybody_in_without_groups(
    render_erb: RenderErb, sshd: list[str | Path], tmp_path: Path
) -> None:
    config = tmp_path / "sshd.conf"
    config.write_text(render_erb("base", "sshd.conf.erb", NODE, {"groups": []}))
    assert "allowgroups" not in run(*sshd, "-T", "-f", config)


@pytest.mark.parametrize("groups", [[], ["engineers"], ["engineers", "site-admins"]])
def test_sudoers(render_erb: RenderErb, tool: Tool, tmp_path: Path, groups: list[str]) -> None:
    path = tmp_path / "sudoers"
    path.write_text(render_erb("base", "sudoers.erb", NODE, {"groups": groups}))
    path.chmod(0o440)
    run(tool("visudo", "sudo"), "--check", f"--file={path}")


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"nearest": None, "servers": [], "pool": "ntp.ubuntu.com"}, "pool ntp.ubuntu.com"),
        ({"nearest": "169.254.169.123", "servers": [], "pool": "p"}, "server 169.254.169.123 prefer"),
        ({"nearest": None, "servers": ["10.200.0.2"], "pool": "p"}, "server 10.200.0.2 iburst"),
    ],
)
def test_chrony(
    render_erb: RenderErb, tool: Tool, tmp_path: Path, variables: dict[str, object], wanted: str
) -> None:
    path = tmp_path / "chrony.conf"
    path.write_text(render_erb("base", "chrony.conf.erb", NODE, variables))
    assert wanted in run(tool("chronyd", "chrony"), "-p", "-f", path)


@pytest.mark.parametrize("wanted", [True, False])
def test_unattended_upgrades(render_erb: RenderErb, tool: Tool, tmp_path: Path, wanted: bool) -> None:
    """APT reads it after the packages' own files, as it does here: their lists are gone, ours are there."""
    before = (
        'Unattended-Upgrade::Origins-Pattern { "origin=Debian,label=Debian"; };\n'
        'Unattended-Upgrade::Package-Blacklist { "vim"; };\n'
    )
    node = {**NODE, "base": {"unattended_upgrades": wanted}}
    path = tmp_path / "apt.conf"
    path.write_text(before + render_erb("base", "unattended-upgrades.conf.erb", node))
    output = run(tool("apt-config", "apt"), f"--config-file={path}", "dump").splitlines()
    assert f'APT::Periodic::Unattended-Upgrade "{int(wanted)}";' in output
    patterns = [line for line in output if line.startswith("Unattended-Upgrade::Origins-Pattern::")]
    assert len(patterns) == 2
    assert all("-security" in line for line in patterns)
    blacklist = [line for line in output if line.startswith("Unattended-Upgrade::Package-Blacklist::")]
    assert any('"^nvidia-"' in line for line in blacklist)
    assert not any('"vim"' in line for line in blacklist)


def test_apt_asks_nobody(tool: Tool) -> None:
    output = run(
        tool("apt-config", "apt"), f"--config-file={COOKBOOKS}/base/files/apt-unasked.conf", "dump"
    ).splitlines()
    assert {'Dpkg::Options:: "--force-confdef";', 'Dpkg::Options:: "--force-confold";'} <= {
        line.replace("DPkg", "Dpkg") for line in output
    }


def test_needrestart(render_erb: RenderErb, tool: Tool, tmp_path: Path) -> None:
    """Perl takes it as needrestart reads it, and the services that jobs hang on are left alone."""
    path = tmp_path / "causeway.conf"
    path.write_text(render_erb("base", "needrestart.conf.erb", NODE))
    script = (
        "our %nrconf; do(shift); die $@ if $@; my $r = $nrconf{override_rc};"
        "print join ' ', map { my $s = $_; grep({ $s =~ /$_/ } keys %$r) ? 0 : 1 } @ARGV"
    )
    units = ["containerd.service", "user@1000.service", "openvpn-server@udp.service", "ssh.service"]
    assert run(tool("perl", "perl"), "-e", script, path, *units) == "0 0 1 1"


def test_sysctl_keys_are_the_kernels(render_erb: RenderErb) -> None:
    text = render_erb("base", "sysctl.conf.erb", NODE)
    keys = [line.split(" = ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(keys) > 10
    # Those of the network's core are of the first network namespace alone.
    known = [
        each for each in keys if not each.startswith(("net.core.rmem", "net.core.wmem", "net.ipv4.neigh"))
    ]
    lost = [each for each in known if not Path("/proc/sys", *each.split(".")).exists()]
    assert lost == []


@pytest.mark.parametrize("flat", [True, False])
def test_apt_source(render_erb: RenderErb, tool: Tool, tmp_path: Path, flat: bool) -> None:
    variables = {
        "name": "mirror",
        "uri": "https://mirror.lab.internal/apt",
        "suites": ["/"] if flat else ["stable"],
        "components": [] if flat else ["main"],
        "architectures": ["amd64"],
        "key": "/etc/apt/keyrings/mirror.asc",
        "origin": "# The key is that of https://mirror.lab.internal/key.asc\n",
    }
    text = render_erb("base", "apt-source.sources.erb", NODE, variables)
    assert "Signed-By: /etc/apt/keyrings/mirror.asc" in text.splitlines()
    (tmp_path / "mirror.sources").write_text(text)
    (tmp_path / "lists").mkdir()
    output = run(
        tool("apt-get", "apt"),
        *("-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={tmp_path}"),
        *("-o", f"Dir::State::lists={tmp_path}/lists", "update", "--print-uris"),
    )
    folder = "" if flat else "dists/stable/"
    assert f"'https://mirror.lab.internal/apt/{folder}InRelease'" in output
    assert ("main/binary-amd64/Packages" in output) is not flat


def test_a_key_is_asked_for_once(render_erb: RenderErb, ask: Ask, tmp_path: Path) -> None:
    """A converge must not need the sites of all vendors, whose keys stay what they are."""
    key, source = tmp_path / "mirror.asc", tmp_path / "mirror.sources"
    url = "https://mirror.lab.internal/key.asc"

    def kept(address: str) -> object:
        files = {"key": str(key), "source": str(source)}
        return ask("base", "Causeway::AptKey.kept?(key, source, url)", **files, url=address)

    assert kept(url) is False
    key.write_text("a key")
    assert kept(url) is False, "a key that somebody else put there"
    variables = {
        "name": "mirror", "uri": "https://mirror.lab.internal/apt", "suites": ["/"], "components": [],
        "architectures": [], "key": str(key),
        "origin": ask("base", "Causeway::AptKey.origin(url)", url=url),
    }  # fmt: skip
    source.write_text(render_erb("base", "apt-source.sources.erb", NODE, variables))
    assert kept(url) is True
    assert kept("https://mirror.lab.internal/other.asc") is False
    key.write_text("")
    assert kept(url) is False, "a download that was cut off"


@pytest.mark.parametrize(("facts", "first"), [({"first_boot": True}, True), ({"baking": False}, False)])
def test_the_first_boot_of_an_image_is_told_from_any_other_run(
    ask: Ask, facts: dict[str, bool], first: bool
) -> None:
    """Nothing is looked for in archives then, and nothing upgraded."""
    asked = "def node.read(*path) = dig(*path)\nCauseway::Place.first_boot?(node)"
    assert ask("base", asked, node={"causeway": facts}) is first


def test_hosts(render_erb: RenderErb) -> None:
    """Whoever looks for a name of this machine finds its address, never 127.0.1.1."""
    node = {**NODE, "base": {"hosts": {"10.200.0.2": ["gateway-a.lab.internal", "gateway-a"]}}}
    variables = {"address": "10.200.0.11", "fqdn": "titan-01.lab.internal", "name": "titan-01"}
    text = render_erb("base", "hosts.erb", node, variables)
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert [row[0] for row in rows if "titan-01" in row] == ["10.200.0.11"]
    assert ["10.200.0.2", "gateway-a.lab.internal", "gateway-a"] in rows


def test_node_exporter(render_erb: RenderErb, tmp_path: Path) -> None:
    """systemd and a shell read the file alike: one word."""
    path = tmp_path / "prometheus-node-exporter"
    path.write_text(render_erb("base", "node-exporter.erb", NODE, {"address": "10.200.0.11", "port": 9100}))
    assert run("sh", "-c", '. "$1"; echo "$ARGS"', "sh", path) == "--web.listen-address=10.200.0.11:9100\n"
