"""Launches that AWS refused: detected, classified, and avoided until a back-off ends."""
