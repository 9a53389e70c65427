"""Hyper-parameter search as pure functions of what trials did; nothing here waits, reads or writes.

::

    fields     what may be written below ``sweep:``
    space      the parameters: drawn, counted, listed
    trials     what is known of a trial
    samplers   parameters of the next trial
    rules      which trials go on
    engine     the two together: what to do next, given all trials so far
    command    a job's command with a trial's parameters in it
    checks     problems across fields
"""
