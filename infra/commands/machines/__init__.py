"""Physical machines: brought in line, asked how they are, met for the first time."""
