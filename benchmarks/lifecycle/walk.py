"""A walk: a spec, edit by edit, and what must hold after each.

- A refused edit changes nothing: exit code 1, a reason, and the spec before it goes on working.
- The plan is truthful: what appears in the state, goes from it or is replaced is what the plan named, and
  each attribute that it said would have a value has it.
- Nothing stateful goes unnamed: what a person cannot recover went because its address was given.
- Then the plan says "no changes", and finds nothing that the spec does not have.
- In the end, the world does not differ from the state, and destroy leaves nothing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import boto3

from benchmarks.lifecycle.edits import EDITS
from benchmarks.lifecycle.project import Project, Result

UNRECOVERABLE: Final = frozenset(
    {
        "aws_ebs_volume",
        "aws_efs_file_system",
        "aws_eip",
        "aws_route53_zone",
        "aws_s3_bucket",
        "aws_vpc",
        "aws_vpn_gateway",
    }
)
"""Types that lose something when they go: said again, so that a slip in the product's own table shows."""

ONLY_AFTER_APPLY: Final = "(known after apply)"
MASKED: Final = "(sensitive)"

_NAMED: Final = re.compile(r"--destroy ('[^']*'|\S+)")


class WalkError(AssertionError):
    """Something that must hold does not; the text has the whole walk up to there."""


@dataclass(frozen=True, slots=True)
class Resource:
    """An instance of a resource in Terraform's state."""

    address: str
    type: str
    id: str
    values: Mapping[str, Any]


@dataclass
class Walk:
    """One environment and its random edits."""

    project: Project
    random: Random
    steps: list[str] = field(default_factory=list)
    """The steps so far; they are part of the message when one fails."""
    refused: int = 0

    def start(self) -> None:
        """Apply the spec as it ships, and flatten it, so that it can be edited anywhere."""
        spec = self.project.spec()
        self.project.write(spec)
        self._apply_as_planned("as shipped")

    def step(self, names: Sequence[str]) -> None:
        """Make these edits, as far as they are possible, and apply them."""
        before = self.project.spec_file.read_text(encoding="utf-8")
        spec = self.project.spec()
        made = [said for name in names if (said := EDITS[name](spec, self.random))]
        if not made:
            return
        self.project.write(spec)
        said = "; ".join(made)
        checked = self.project.run("validate")
        if checked.code != 0:
            self._refused(said, checked, before)
            return
        self._apply_as_planned(said)

    def finish(self, outlives: Iterable[str] = ()) -> None:
        """Destroy it all; ``outlives`` are identifiers of what was there before the first apply."""
        drift = self.ok(self.project.run("drift", "--json"), codes=(0, 2))
        if json.loads(drift.out):
            raise self._wrong(f"applied, and there is drift\n{drift}")
        self.steps.append("destroy")
        self.ok(self.project.run("destroy", "--confirm", self.project.environment))
        left = {
            f"{site}/{kind}/{name}"
            for site, kinds in self.project.inventory().items()
            for kind, names in kinds.items()
            for name in names
            if name not in set(outlives)
        }
        if left:
            raise self._wrong(f"destroy left {', '.join(sorted(left))}")

    # -- One step --------------------------------------------------------------------------------------

    def _apply_as_planned(self, said: str) -> None:
        self.steps.append(said)
        before = self.state()
        plan, named = self._plan()
        if plan["has_changes"]:
            self.ok(self.project.run("apply", "--yes", *_destroy(named)))
        after = self.state()
        for wrong in (*untruths(plan, before, after), *unnamed(before, after, named)):
            raise self._wrong(wrong)
        again = self.project.run("plan", "--json", "--detailed-exitcode")
        if again.code != 0 or json.loads(again.out)["undeclared"]:
            raise self._wrong(f"applied, and the plan still has changes, or finds what is not ours\n{again}")

    def _plan(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The plan, and the addresses that it asked to be named."""
        named: tuple[str, ...] = ()
        for _ in range(3):
            result = self.project.run("plan", "--json", "--detailed-exitcode", *_destroy(named))
            if result.code in (0, 2):
                plan: dict[str, Any] = json.loads(result.out)
                return plan, tuple(dict.fromkeys((*named, *plan["protected"])))
            asked = tuple(shlex.split(match)[0] for match in _NAMED.findall(result.err))
            if not asked or set(asked) <= set(named):
                raise self._wrong(str(result))
            named = tuple(dict.fromkeys((*named, *asked)))
        raise self._wrong(f"the plan goes on asking for more: {', '.join(named)}")

    def _refused(self, said: str, checked: Result, before: str) -> None:
        """An edit that the checks refuse: with a reason, and nothing has changed."""
        self.ok(checked, codes=(1,))
        if not re.search(r"\[[A-Z]+\d+\]", checked.err + checked.out):
            raise self._wrong(f"refused without a code: {said}\n{checked}")
        self.refused += 1
        self.steps.append(f"(refused: {said})")
        self.project.spec_file.write_text(before, encoding="utf-8")

    def ok(self, result: Result, codes: tuple[int, ...] = (0,)) -> Result:
        """The result; `WalkError` for another exit code than these, or a traceback."""
        if result.code not in codes or "Traceback" in result.err:
            raise self._wrong(str(result))
        return result

    def _wrong(self, what: str) -> WalkError:
        steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.steps, 1))
        return WalkError(f"{what}\nThe walk, {self.project.environment}:\n{steps}")

    # -- State -----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Resource]:
        """Terraform's state: address → resource; empty before the first apply."""
        local = self.project.build / "state" / "terraform.tfstate"
        text = local.read_text(encoding="utf-8") if local.exists() else self._remote_state()
        return {one.address: one for one in resources(json.loads(text))} if text else {}

    def _remote_state(self) -> str:
        spec = self.project.spec()
        stored = spec.get("state", {})
        status = json.loads(self.project.run("local.status", "--json").out)
        if stored.get("kind") != "s3" or not status.get("running"):
            return ""
        client = boto3.client(
            "s3",
            endpoint_url=status["address"],
            region_name=stored.get("region", "us-west-2"),
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        try:
            key = stored.get("key", f"{self.project.environment}/terraform.tfstate")
            return str(client.get_object(Bucket=stored["bucket"], Key=key)["Body"].read().decode())
        except client.exceptions.NoSuchKey:
            return ""


def _destroy(named: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for address in named for word in ("--destroy", address))


def resources(state: Mapping[str, Any]) -> Iterator[Resource]:
    """All managed instances of a state, format version 4."""
    for row in state.get("resources", ()):
        if row["mode"] != "managed":
            continue
        for instance in row["instances"]:
            key = instance.get("index_key")
            index = "" if key is None else f"[{json.dumps(key)}]"
            module = f"{row['module']}." if row.get("module") else ""
            values = instance["attributes"]
            yield Resource(
                f"{module}{row['type']}.{row['name']}{index}", row["type"], str(values.get("id")), values
            )


# -- What must hold --------------------------------------------------------------------------------


def untruths(
    plan: Mapping[str, Any], before: Mapping[str, Resource], after: Mapping[str, Resource]
) -> Iterator[str]:
    """Where apply did another thing than the plan said."""
    changes = {change["address"]: change for change in plan["changes"]}
    moved = {change["previous_address"]: address for address, change in changes.items()}
    was = {moved.get(address, address): resource for address, resource in before.items()}
    actions = {address: change["action"] for address, change in changes.items()}
    for address in sorted(was.keys() | after.keys()):
        action = actions.get(address, "no-op")
        match (address in was, address in after):
            case (False, True) if action != "create":
                yield f"{address} was made; the plan said {action}"
            case (True, False) if action not in ("delete", "forget"):
                yield f"{address} went; the plan said {action}"
            case (True, True) if action in ("create", "delete"):
                yield f"{address} is as it was; the plan said {action}"
            case (True, True) if was[address].id != after[address].id and action == "no-op":
                yield f"{address} was {was[address].id} and is {after[address].id}; the plan said nothing"
    for address, change in changes.items():
        if change["action"] not in ("update", "replace") or address not in after:
            continue
        for attribute in change["attributes"]:
            path, wanted = attribute["path"], attribute["after"]
            if wanted in (ONLY_AFTER_APPLY, MASKED) or not path.isidentifier():
                continue
            if not _equal(wanted, after[address].values.get(path)):
                yield f"{address}.{path} is {after[address].values.get(path)!r}; the plan said {wanted!r}"


def _equal(planned: Any, present: Any) -> bool:
    """As values: JSON may be spaced differently, and sets come in any order.

    An empty value says nothing: AWS may choose one (the credits of a burstable instance), and what is not
    known before an apply is left out.
    """
    if planned in (None, "", [], {}):
        return True
    if isinstance(planned, str) and isinstance(present, str) and planned[:1] in ("{", "["):
        try:
            return bool(json.loads(planned) == json.loads(present))
        except ValueError:
            return planned == present
    if isinstance(planned, list) and isinstance(present, list):
        rest = list(present)
        for one in planned:
            found = next((each for each in rest if _equal(one, each)), None)
            if found is None:
                return False
            rest.remove(found)
        return not rest
    if isinstance(planned, dict) and isinstance(present, dict):
        return all(_equal(value, present.get(name)) for name, value in planned.items())
    return bool(planned == present)


def unnamed(
    before: Mapping[str, Resource], after: Mapping[str, Resource], named: Sequence[str]
) -> Iterator[str]:
    """What cannot be recovered and went without its address, or that of a module around it, being given."""
    present = {(resource.type, resource.id) for resource in after.values()}
    for address, resource in before.items():
        if (resource.type, resource.id) in present or not _unrecoverable(resource):
            continue
        if not any(address == name or address.startswith((f"{name}.", f"{name}[")) for name in named):
            yield f"{address} ({resource.id}) went without being named"


def _unrecoverable(resource: Resource) -> bool:
    if resource.type == "aws_instance":
        return (resource.values.get("tags_all") or {}).get("role") in ("control-plane", "master")
    return resource.type in UNRECOVERABLE


def walk(project: Project, seed: int, steps: Sequence[Sequence[str]], outlives: Iterable[str] = ()) -> Walk:
    """A whole walk: from nothing through these steps, back to nothing. `WalkError` where one goes wrong."""
    walked = Walk(project, Random(seed))
    walked.start()
    for names in steps:
        walked.step(names)
    walked.finish(outlives)
    return walked


def drawn(seed: int, count: int, edits: int = 3) -> list[list[str]]:
    """Random steps: ``count`` of them, each of up to ``edits`` edits."""
    random = Random(seed)
    return [random.sample(list(EDITS), random.randint(1, edits)) for _ in range(count)]
