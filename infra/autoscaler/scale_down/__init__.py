"""Which machines are terminated: idle, broken or interrupted ones; nodes are drained first."""
