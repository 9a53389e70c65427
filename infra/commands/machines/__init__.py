"""Machines with a name of their own: brought in line, asked how they are, met for the first time."""
