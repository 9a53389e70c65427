"""What AWS could not launch: detected, classified, and avoided until a back-off ends."""
