"""What the tasks have in common, between the four verbs and the terminal.

::

    environment   a name → its files, and what they mean: load, resolve, render
    world         what a meaning is driven against: an account, or the embedded AWS; the secrets
    marks         a plan's changes as marks on the topology picture
    provenance    each value of a spec and where it comes from
    terminal      problems, questions and JSON for the person, or the program, at the other end
"""
