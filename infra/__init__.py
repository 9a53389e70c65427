"""Causeway: one declarative file in, a whole hybrid deep-learning cloud out.

Data flows one way, through four verbs: load, resolve, render, drive.
"""
