"""Random edits of a spec, each planned and applied on the embedded AWS: does the plan say what apply does?

edits     what a lab does to its spec, one function an edit
project   a project folder, and the command line in it
reads     reads that find nothing after a write
walk      a sequence of steps, and what must hold after each
"""
