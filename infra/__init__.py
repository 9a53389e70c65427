"""Causeway: turns one declarative file into a hybrid deep-learning cloud.

Data flows in one direction, through four verbs: load, resolve, render, drive.
"""
