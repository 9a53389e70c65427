"""What Chef runs on machines."""

from __future__ import annotations

from golden_clusters import golden

from infra.resolve.software import run_list


def test_what_serves_others_comes_first_and_gpus_have_a_driver_whatever_the_machine_is_for() -> None:
    assert run_list(("ssh-node", "worker", "nfs-server", "site-gateway"), None) == (
        "role[site-gateway]", "role[nfs-server]", "role[worker]", "role[ssh-node]",
    )  # fmt: skip
    titan = golden("research").sites[0].nodes[2]
    assert titan.gpus is not None
    assert run_list(("ssh-node",), titan.gpus) == ("role[base]", "recipe[gpu]", "role[ssh-node]")
