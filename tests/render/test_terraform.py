"""The rendered root module: what the golden folders do not show."""

from __future__ import annotations

import json
import re
from typing import Any

from golden_clusters import golden
from msgspec.structs import replace

from infra.model import Cluster
from infra.render import render
from infra.render.terraform import render as render_terraform


def values(of: Cluster) -> dict[str, Any]:
    variables: dict[str, Any] = json.loads(render_terraform(of)["terraform.tfvars.json"])
    return variables


def test_no_value_is_in_the_wiring() -> None:
    research = golden("research")
    wiring = render_terraform(research)["main.tf"]
    blocks = [str(block.block) for block in research.network.blocks]
    assert not [block for block in blocks if block in wiring]


def test_buckets_that_are_volumes_are_pods_alone_also_without_research() -> None:
    """By a role a namespace; nodes have no rights on them."""
    variables = values(replace(golden("research"), research=None))
    assert variables["web_identity"]["volumes"]["checkpoints"]["read_only"] is False
    assert "user-ada" in variables["web_identity"]["roles"]
    assert sorted(variables["identity"]["buckets"]) == ["datasets", "home-backup"]


def test_without_masters_no_name_is_given_to_them() -> None:
    main = render_terraform(replace(golden("minimal"), control_plane=None))["main.tf"]
    assert "load_balancer" not in main


def test_two_renders_are_one() -> None:
    assert render(golden.__wrapped__("research")) == render(golden("research"))


def test_a_module_names_each_field_of_a_pool_that_it_is_given() -> None:
    """Terraform drops those that an object type does not name, without a word."""
    given = render_terraform(golden("minimal"))
    files = {str(path): text for path, text in given.items()}
    _, _, text = files["modules/node_pool/variables.tf"].partition('variable "pool" {')
    named = re.findall(r"^    (\w+) += ", text.partition("\n  })\n")[0], re.MULTILINE)
    (region, *_) = json.loads(files["terraform.tfvars.json"])["regions"].values()
    (pool, *_) = region["node_pools"].values()
    assert sorted(pool) == sorted(named)
