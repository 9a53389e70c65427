"""What is measured: ``invoke bench``. Some of it runs on servers and machines that tests have, too."""

import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT / "tests"), str(_ROOT / "client")]
