"""``python -m causeway``."""

from causeway.cli import main

main()
