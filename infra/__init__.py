"""Causeway: turns one declarative file into a hybrid deep-learning cloud.

Data flows in one direction, through four verbs: load, resolve, render, drive.
"""

__version__ = "1.0.0"
