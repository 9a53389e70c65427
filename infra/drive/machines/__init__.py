"""Machines as they are: brought in line with their roles, asked how they are, met for the first time."""
