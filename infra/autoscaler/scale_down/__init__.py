"""Which machines end: idle, broken or interrupted ones, drained before they are terminated."""
