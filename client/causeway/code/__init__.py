"""Code as it is shipped: which files, what must not be among them, and one archive with a name of its own."""
