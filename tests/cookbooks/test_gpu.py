"""gpu: names of packages by GPU and release, and the health check, run as it runs on a machine.

The check is real; what it asks is a stand-in, see ``gpu_machine.py``.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cookbooks.gpu_machine import SAID, XIDS, Machine, Node, healthy_machine, xml
from cookbooks.kitchen import Ask, RenderErb, Tool, run
from golden_folders import assert_text

MESSAGES = Path(__file__).parents[1] / "messages/gpu-health.txt"
T470, O580, U580 = "nvidia-tesla-470", "580-server-open", "nvidia-utils-580-server"


# Packages


@pytest.mark.parametrize(
    ("asked", "packages"),
    [
        (
            "packages(branch: 470, open: false, source: 'distribution', platform: 'ubuntu')",
            "nvidia-headless-470-server nvidia-utils-470-server nvidia-modprobe",
        ),
        (
            "packages(branch: 580, open: true, source: 'distribution', platform: 'ubuntu')",
            "nvidia-headless-580-server-open nvidia-utils-580-server nvidia-modprobe",
        ),
        (
            "packages(branch: 590, open: true, source: 'nvidia', platform: 'ubuntu')",
            "nvidia-dkms-open libnvidia-compute nvidia-persistenced nvidia-modprobe",
        ),
        (
            "packages(branch: 470, open: false, source: 'distribution', platform: 'debian')",
            f"{T470}-kernel-dkms lib{T470}-cuda1 {T470}-smi nvidia-persistenced nvidia-modprobe",
        ),
        (
            "signed(branch: 580, open: true, images: %w(linux-image-6.8.0-48-generic linux-image-generic))",
            f"linux-modules-nvidia-{O580}-generic nvidia-headless-no-dkms-{O580} {U580} nvidia-modprobe",
        ),
        # Headers follow the images of kernels; without a meta package, the running kernel.
        (
            "headers(%w(linux-image-6.8.0-4-aws linux-image-generic-hwe-22.04 linux-image-aws), '6.8.0-4')",
            "linux-headers-aws linux-headers-generic-hwe-22.04",
        ),
        ("headers(['linux-image-6.1.0-9-amd64'], '6.1.0-9-amd64')", "linux-headers-6.1.0-9-amd64"),
        # The toolkit is one that the release has.
        ("toolkit('12.8', 'noble')", "cuda-toolkit-12-8"),
        ("toolkit('11.4', 'jammy')", "cuda-toolkit-11-7"),
    ],
)
def test_packages(ask: Ask, asked: str, packages: str) -> None:
    assert ask("gpu/driver", f"[Causeway::Driver.{asked}].flatten") == packages.split()


@pytest.mark.parametrize(
    ("asked", "facts"),
    [
        ("objection(branch: 580, family: 'pascal', open: false)", None),
        ("objection(branch: 580, family: 'hopper', open: true)", None),
        ("objection(branch: 580, family: 'pascal', open: true)", ["pascal"]),
        ("objection(branch: 580, family: 'blackwell', open: false)", ["blackwell"]),
        ("objection(branch: 470, family: nil, open: true)", ["470", "515"]),
        ("objection(branch: nil, family: nil, open: false)", ["node['gpu']['driver']"]),
        ("toolkit('11.4', 'noble')", ["11.4", "noble", "12.5"]),
    ],
)
def test_what_can_not_work_is_refused(ask: Ask, asked: str, facts: list[str] | None) -> None:
    refusal = ask("gpu/driver", f"Causeway::Driver.{asked}")
    text = refusal["raised"] if isinstance(refusal, dict) else refusal
    assert text is None if facts is None else all(fact in text for fact in facts)


@pytest.mark.parametrize(
    ("given", "major"), [("470, 'kepler'", 11), ("570, 'hopper'", 12), ("580", 13), ("580, 'volta'", 12)]
)
def test_the_cuda_that_programs_are_for(ask: Ask, given: str, major: int) -> None:
    """CUDA 13 has no code for Volta and earlier; the driver's branch 580 drives them."""
    assert ask("gpu/driver", f"Causeway::Driver.cuda_major({given})") == major


def test_the_persistence_daemon_s_unit_is_one(render_erb: RenderErb, tool: Tool, tmp_path: Path) -> None:
    unit = tmp_path / "nvidia-persistenced.service"
    unit.write_text(render_erb("gpu", unit.name + ".erb", variables={"user": "root"}))
    output = run(tool("systemd-analyze", "systemd"), "verify", "--man=no", unit, ok=None)
    assert "Unknown" not in output
    assert "--persistence-mode" in unit.read_text()


# The health check


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return healthy_machine(tmp_path)


def test_healthy(machine: Machine) -> None:
    report = machine.check()
    assert report["healthy"] is True
    assert report["checked"].endswith("Z")
    assert report["gpus"] == [
        {"index": n, "name": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-{n}", "healthy": True, "reasons": []}
        for n in range(2)
    ]


LASTING, PASSING, NOTE = [False] * 3, [True, True, False], [True] * 3
"""The verdict on the machine in three checks: sick at once, when the fault stays, or never."""


def reported(**fault: str) -> Callable[[Machine], None]:
    """`nvidia-smi` says so of the second GPU."""
    return lambda machine: machine.gpus({}, fault)


def lacks_a_gpu(machine: Machine) -> None:
    machine.gpus({})


def driver_lacks_a_gpu(machine: Machine) -> None:
    machine.says("nvidia-smi", xml({}))


def logs_xids(machine: Machine) -> None:
    """31 is a program's fault."""
    machine.logs(
        "NVRM: Xid (PCI:0000:01:00): 31, pid=77, name=python3, MMU Fault",
        "NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    )


def loses_a_gpu_with_an_xid(machine: Machine) -> None:
    machine.bus(1)
    machine.says("nvidia-smi", xml({}))
    machine.logs("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.")


def hangs(machine: Machine) -> None:
    machine.settings["timeout"] = 0.2
    machine.program("nvidia-smi", "exec sleep 1000")


def answers_for_one_gpu_alone(machine: Machine) -> None:
    (machine.root / "one.xml").write_text(xml({}))
    lost = "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error"
    one = f"cat {machine.root}/one.xml"
    machine.program("nvidia-smi", f'case "$*" in *--id\\ 0000:01*) {one};; *) echo "{lost}"; exit 15;; esac')


def has_no_driver(machine: Machine) -> None:
    (machine.root / "nvidia-smi").unlink()


def has_branch_470(machine: Machine) -> None:
    """A K80: double-bit errors by place, `pending_blacklist`, throttle reasons."""
    machine.settings["count"] = 1
    machine.bus(1)
    machine.says(
        "nvidia-smi",
        """<nvidia_smi_log><gpu id="00000000:01:00.0"><product_name>Tesla K80</product_name><uuid>GPU-0</uuid>
        <ecc_errors><volatile><double_bit><device_memory>1</device_memory><total>1</total></double_bit></volatile>
        </ecc_errors><retired_pages><pending_blacklist>Yes</pending_blacklist></retired_pages>
        <clocks_throttle_reasons><clocks_throttle_reason_hw_thermal_slowdown>Active
        </clocks_throttle_reason_hw_thermal_slowdown></clocks_throttle_reasons></gpu></nvidia_smi_log>""",
    )


ONE_OF_TWO = [True, False]
FAULTS: dict[str, tuple[Callable[[Machine], None], list[bool], list[bool]]] = {
    "a GPU is missing": (lacks_a_gpu, ONE_OF_TWO, LASTING),
    "the driver does not have a GPU": (driver_lacks_a_gpu, ONE_OF_TWO, LASTING),
    "Xids": (logs_xids, ONE_OF_TWO, LASTING),
    "an Xid of a GPU that is gone": (loses_a_gpu_with_an_xid, ONE_OF_TWO, LASTING),
    "remapped row pending": (reported(remapped_row_pending="Yes"), ONE_OF_TWO, LASTING),
    "remapped row failure": (reported(remapped_row_failure="Yes"), ONE_OF_TWO, LASTING),
    "pending retirement": (reported(pending_retirement="Yes"), ONE_OF_TWO, LASTING),
    "uncorrectable errors": (reported(dram_uncorrectable="2"), ONE_OF_TWO, LASTING),
    "recovery action": (reported(gpu_recovery_action="GPU Reset"), ONE_OF_TWO, LASTING),
    "a lost GPU": (reported(persistence_mode="[GPU is lost]"), ONE_OF_TWO, LASTING),
    "heat": (reported(hw_thermal_slowdown="Active"), ONE_OF_TWO, PASSING),
    "the power brake": (reported(hw_power_brake_slowdown="Active"), ONE_OF_TWO, PASSING),
    "persistence mode": (reported(persistence_mode="Disabled"), [True, True], NOTE),
    "nvidia-smi hangs": (hangs, [False, False], PASSING),
    "nvidia-smi answers for one GPU alone": (answers_for_one_gpu_alone, ONE_OF_TWO, PASSING),
    "no driver": (has_no_driver, [False, False], PASSING),
    "branch 470": (has_branch_470, [False], LASTING),
}
"""What happens to a machine, which of its GPUs are healthy then, and the verdicts."""


def test_faults(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seen, lines = {}, []
    for name, (begin, _, _) in FAULTS.items():
        root = tmp_path / name.replace(" ", "-")
        root.mkdir()
        machine = healthy_machine(root)
        begin(machine)
        reports = [machine.check() for _ in range(3)]
        gpus = reports[0]["gpus"]
        seen[name] = [gpu["healthy"] for gpu in gpus], [report["healthy"] for report in reports]
        reasons = [f"GPU {gpu['index']}: {reason}" for gpu in gpus for reason in gpu["reasons"]]
        lines += [
            f"{name}:",
            *(f"  {each}".replace(f"{root}/", "") for each in [*reports[0]["reasons"], *reasons]),
        ]
    assert seen == {name: (gpus, verdicts) for name, (_, gpus, verdicts) in FAULTS.items()}
    assert_text(MESSAGES, "\n".join(lines) + "\n", rewrite=request.config.getoption("--update-golden"))


@pytest.mark.parametrize("said", sorted(SAID.glob("*.json")), ids=lambda path: path.stem)
def test_what_real_drivers_say_is_read(machine: Machine, said: Path) -> None:
    """As ``benchmarks/gpu_check.py`` kept it on machines with these GPUs."""
    text = json.loads(said.read_text())["-q -x"]
    bus_id = re.search(r'<gpu id="0000(\S+)">', text)
    assert bus_id is not None
    machine.bus(1)
    (machine.root / "pci/0000:01:00.0").rename(machine.root / "pci" / bus_id[1].lower())
    machine.says("nvidia-smi", text)
    report = machine.check(count=1)
    assert report["healthy"] is True
    (gpu,) = report["gpus"]
    assert gpu["name"].lower().replace(" ", "-") == said.stem
    assert (gpu["healthy"], gpu["reasons"]) == (True, [])
    # The same GPU, with what it says of the worst day.
    broken = text.replace("<remapped_row_pending>No<", "<remapped_row_pending>Yes<")
    machine.says("nvidia-smi", broken)
    assert machine.check(count=1)["gpus"][0]["healthy"] is (broken == text)


def test_without_a_count_a_gpu_may_not_get_lost(machine: Machine) -> None:
    assert machine.check(count=None)["healthy"] is True
    machine.gpus({})
    assert machine.check(count=None)["healthy"] is False
    (machine.root / "boot").write_text("second\n")  # somebody took it out
    machine.run(count=None)
    assert machine.check(count=None)["gpus"][0]["healthy"] is True
    assert len(machine.report()["gpus"]) == 1


def test_what_can_not_be_ended_is_not_started_again(machine: Machine) -> None:
    """What waits within the driver outlives SIGKILL; this process, which nobody killed, stands for it."""
    left = subprocess.Popen(["sleep", "1000"])
    try:
        started = Path(f"/proc/{left.pid}/stat").read_text().rpartition(")")[2].split()[19]
        (machine.root / "state.json").write_text(
            json.dumps({"boot": "first", "left": {"pid": left.pid, "started": started}})
        )
        machine.program("nvidia-smi", f"touch {machine.root}/asked")
        report = machine.check()
        assert report["healthy"] is False
        assert not (machine.root / "asked").exists()
    finally:
        left.kill()
        left.wait()
    machine.gpus({}, {})
    assert machine.check()["reasons"] == []


# What the cluster is told


def test_a_sick_node_is_cordoned_and_comes_back(machine: Machine) -> None:
    node = machine.kubernetes()
    machine.check()
    assert not node.cordoned()
    assert node.condition() == "True"
    machine.gpus({}, {"remapped_row_pending": "Yes"})
    machine.check()
    assert node.cordoned()
    assert node.why().startswith("GPU 1: ")
    assert node.condition() == "False"
    machine.gpus({}, {})
    assert checks_until_well(machine, node) == 3
    assert node.why() is None
    assert node.condition() == "True"
    assert node.read()["metadata"]["annotations"] == {"else": "1"}


def test_a_well_node_leaves_the_cluster_in_peace(machine: Machine) -> None:
    node = machine.kubernetes()
    machine.check()
    assert node.asked() > 0
    machine.check()
    assert node.asked() == 0


def test_never_in_and_out(machine: Machine) -> None:
    """A fault every other check: out once, and out it stays; each relapse asks for twice the patience."""
    node = machine.kubernetes()
    sick, well = {"gpu_recovery_action": "GPU Reset"}, dict[str, str]()
    seen = []
    for number in range(7):
        machine.gpus({}, sick if number % 2 == 0 else well)
        machine.check()
        seen.append(node.cordoned())
    assert set(seen) == {True}
    assert checks_until_well(machine, node) == 3
    machine.gpus({}, sick)
    machine.check()
    assert checks_until_well(machine, node) == 6
    machine.gpus({}, sick)
    machine.check()
    assert checks_until_well(machine, node) == 12


def checks_until_well(machine: Machine, node: Node) -> int:
    machine.gpus({}, {})
    for number in range(1, 40):
        machine.check()
        if not node.cordoned():
            return number
    raise AssertionError("never")


def test_who_was_cordoned_by_a_person_stays_so(machine: Machine) -> None:
    node = machine.kubernetes()
    node.cordon(True)
    machine.gpus({}, {"remapped_row_pending": "Yes"})
    machine.check()
    assert node.cordoned()
    assert node.why() is None
    assert checks_are(machine, 6, node.cordoned)


def checks_are(machine: Machine, count: int, what: Callable[[], bool]) -> bool:
    machine.gpus({}, {})
    return all((machine.run(), what())[1] for _ in range(count))


def test_a_sick_node_that_an_upgrade_uncordoned_is_cordoned_again(machine: Machine) -> None:
    node = machine.kubernetes()
    machine.gpus({}, {"remapped_row_pending": "Yes"})
    machine.check()
    node.cordon(False)
    machine.check()
    assert node.cordoned()


def test_where_the_cluster_taints_a_sick_node_leaves_word_and_is_not_cordoned(machine: Machine) -> None:
    node, word = machine.kubernetes(), machine.root / "features" / "causeway-gpu"
    machine.settings |= {"cordon": False, "features": str(word)}
    machine.check()
    assert not word.exists()
    machine.gpus({}, {"remapped_row_pending": "Yes"})
    machine.check()
    assert word.read_text() == "# +no-label\ncauseway.dev/gpu-sick=true\n"
    assert not node.cordoned()
    assert node.condition() == "False"
    assert [path.name for path in word.parent.iterdir()] == [word.name]
    assert checks_are(machine, 2, word.exists)
    machine.check()
    assert not word.exists()
    assert node.condition() == "True"


def test_a_node_that_was_cordoned_comes_back_when_it_is_tainted_instead(machine: Machine) -> None:
    node = machine.kubernetes()
    machine.gpus({}, {"remapped_row_pending": "Yes"})
    machine.check()
    assert node.cordoned()
    machine.settings |= {"cordon": False, "features": str(machine.root / "features" / "causeway-gpu")}
    machine.check()
    assert not node.cordoned()
    assert node.why() is None


def test_a_cluster_out_of_reach_is_told_later(machine: Machine) -> None:
    node = machine.kubernetes()
    machine.gpus({}, {"remapped_row_pending": "Yes"})
    (machine.root / "unreachable").touch()
    assert machine.run().returncode == 1
    assert machine.report()["healthy"] is False
    (machine.root / "unreachable").unlink()
    assert machine.run().returncode == 0
    assert node.cordoned()


def test_a_verdict_outlives_a_reboot(machine: Machine) -> None:
    node = machine.kubernetes()
    machine.logs("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.")
    machine.check()
    (machine.root / "boot").write_text("second\n")
    machine.logs()
    machine.check()
    assert node.cordoned()
    assert checks_until_well(machine, node) == 2


def test_after_a_repair_old_xids_are_forgotten(machine: Machine) -> None:
    node = machine.kubernetes()
    machine.logs("NVRM: Xid (PCI:0000:02:00): 48, DBE (double bit error)")
    machine.check()
    assert machine.check()["healthy"] is False
    machine.run("forget")
    assert checks_until_well(machine, node) == 3


def test_a_state_that_can_not_be_read_is_begun_anew(machine: Machine) -> None:
    node = machine.kubernetes()
    machine.gpus({}, {"remapped_row_pending": "Yes"})
    machine.check()
    (machine.root / "state.json").write_text("{")
    machine.gpus({}, {})
    assert machine.run().returncode == 0
    assert not node.cordoned()


def test_a_misspelled_setting_is_an_error(machine: Machine) -> None:
    ran = machine.run(cont=4)
    assert ran.returncode == 1
    assert "cont" in ran.stderr


def test_chef_writes_the_settings_that_the_check_knows(machine: Machine, ask: Ask) -> None:
    given = {
        "gpu": {
            "count": 2,
            "fatal_xids": XIDS,
            "health": {
                "enabled": True, "every": "1min", "cordon": True,
                "bad_after": 3, "good_after": 5, "timeout": 60, "uncorrectable": 0,
            },
        },
        "causeway": {"name": "titan-01"},
    }  # fmt: skip
    node = "Class.new(Hash) { def read(*path) = dig(*path) }.new.merge!(given)"
    written = ask("gpu/health_settings", f"Causeway::HealthSettings.of({node})", **given)
    assert written["node"] == "titan-01"
    machine.settings.update(written | {"node": None})
    assert machine.check()["healthy"] is True
