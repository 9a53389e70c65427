"""What Terraform lets through is named before anything is rendered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


EXPECTED = """\
environments/six.yaml:8: sites.us-east-1.zones[3]: us-east-1z is not a zone of us-east-1; did you mean \
us-east-1f? There are us-east-1a, us-east-1b, us-east-1c, us-east-1d, us-east-1e and us-east-1f [SITE004]
environments/six.yaml:11: sites.us-east-1.explicit_subnets.us-east-1a.public: 10.2.0.0/24 overlaps \
10.2.0.0/20 of sites.us-east-1.explicit_subnets.us-east-1a.private; take another part of the VPC, or leave \
it out [NET002]
environments/six.yaml:14: sites.us-east-1.explicit_subnets.us-east-1b.public: 10.9.0.0/24 lies outside the \
VPC's 10.2.0.0/16; take a part of 10.2.0.0/16 [NET003]
environments/six.yaml:16: sites.us-east-1.explicit_subnets.us-east-1c.public: 10.2.255.0/29 is a /29; AWS \
takes /16 to /28; 10.2.255.0/28 is the smallest [NET004]
environments/six.yaml:22: pools.cpu.instance_types[0]: p9.xlarge is not an EC2 instance type; did you mean \
p3.2xlarge? [POOL001]
environments/six.yaml:25: pools.cpu.regions.us-east-1.min: min 9 is above max 4; lower min, or raise max \
[POOL002]
"""


def test_one_validate_names_all_six_faults_with_their_lines(tmp_path: Path) -> None:
    environments = tmp_path / "environments"
    environments.mkdir()
    (environments / "six.yaml").write_text(SIX_FAULTS)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "--search-root", str(root), "validate", "--env", "six"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == EXPECTED
    assert done.stdout == "environments/six.yaml has 6 errors\n"
