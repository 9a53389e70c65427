"""Codes whose findings are raised elsewhere: they need more than the spec, or come before there is one."""

from __future__ import annotations

from typing import Final

from infra.checks.registry import declare
from infra.errors import Level

UNUSED_WAIVER: Final = "WAIV002"
"""A waiver without a finding: known only when all rules have run."""

for code, doc in {
    "SPEC001": "The file is not readable YAML: its syntax, its encoding, a tag, a merge key.",
    "SPEC002": "A key that the spec does not know.",
    "SPEC003": "A value of the wrong kind or out of its range.",
    "SPEC004": "A key that must be given is missing.",
    "SPEC005": "A key is written twice in one mapping.",
    "SPEC006": "The file that `extends` names can't be read, or the chain goes round in a circle.",
    # infra.load: the name of the file
    "NAME009": "The file's name, which begins every name in AWS, is not one that AWS takes.",
    # infra.resolve: the allocator
    "NET030": "Two blocks overlap once all are allocated, or one touches a range that is kept free.",
    "NET031": "A block does not fit into the range it is taken from.",
    "NET032": "A block that the lock file holds is no longer the one, or the size, that the spec asks for.",
    "NET033": "A block that is stated or held lies outside the range it belongs to.",
    # infra.resolve: the lock file
    "LOCK001": "The lock file can't be read as one.",
    "LOCK002": "A key in the lock file that does not belong there.",
    "LOCK003": "A value in the lock file that is none.",
    "LOCK004": "The lock file is of a version that this Causeway does not know.",
    "LOCK005": "A key is written twice in the lock file.",
    "LOCK006": "Two blocks of the lock file overlap, or two have one number: two branches took the same.",
    "LOCK007": "A site is in another AWS region than the lock file holds.",
    # infra.resolve: uids, gids, AS numbers
    "NUM001": "Two people, groups, sites or regions have the same number.",
    "NUM002": "No number is left to give out.",
    "NUM003": "A number is stated that is not the one the lock file holds.",
    # invoke plan
    "UPD001": "A field was changed that can't change after the first apply.",
    # invoke doctor and the first plan: infra.checks.account_zones
    "SITE034": "The account does not have a zone of the spec.",
    "POOL049": "The account is not offered any instance type of a pool in the pool's zones.",
    "ACC029": "The account is not offered the type of a machine with a name in the zone of the machine.",
}.items():
    declare(code, Level.ERROR, doc)

# invoke plan
declare("STO026", Level.WARNING, "The state of a real account is a local file. An error where CI is set.")

# invoke doctor and the first plan
declare(
    "POOL050", Level.WARNING, "The account is not offered some types of a pool, or none in one of its zones."
)

declare(UNUSED_WAIVER, Level.WARNING, "A waiver that no finding needs.")
