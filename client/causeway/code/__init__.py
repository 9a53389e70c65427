"""Shipped code: which files, checks for files that must not be included, and one archive named by its
content.
"""
