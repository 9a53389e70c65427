"""The AWS side: what Auto Scaling groups have, in all regions at once, and what we write to them."""
