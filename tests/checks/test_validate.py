"""What Terraform lets through is named before anything is rendered."""

from __future__ import annotations

import re
from pathlib import Path

from invoking import Project

SIX_FAULTS = """\
version: 1
name: six
domain: six.internal
sites:
  us-east-1:
    kind: aws
    cidr: 10.2.0.0/16
    zones: [us-east-1a, us-east-1b, us-east-1c, us-east-1z]
    explicit_subnets:
      us-east-1a:
        public: 10.2.0.0/24
        private: 10.2.0.0/20
      us-east-1b:
        public: 10.9.0.0/24
      us-east-1c:
        public: 10.2.255.0/29
images:
  cpu: {}
pools:
  cpu:
    image: cpu
    instance_types: [p9.xlarge]
    regions:
      us-east-1:
        min: 9
        max: 4
"""

EXPECTED = [
    ("8", "sites.us-east-1.zones[3]", "SITE004"),
    ("11", "sites.us-east-1.explicit_subnets.us-east-1a.public", "NET002"),
    ("14", "sites.us-east-1.explicit_subnets.us-east-1b.public", "NET003"),
    ("16", "sites.us-east-1.explicit_subnets.us-east-1c.public", "NET004"),
    ("22", "pools.cpu.instance_types[0]", "POOL001"),
    ("25", "pools.cpu.regions.us-east-1.min", "POOL002"),
]


def test_one_validate_names_all_six_faults_with_their_lines(tmp_path: Path) -> None:
    project = Project(tmp_path, "six")
    project.write(SIX_FAULTS)
    out, err = project.invoke("validate", code=1)
    findings = [
        re.fullmatch(r"environments/six\.yaml:(\d+): (\S+): .* \[(\w+)\]", line) for line in err.splitlines()
    ]
    assert [finding and finding.groups() for finding in findings] == EXPECTED
    assert "6" in out
