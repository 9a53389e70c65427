"""Models of other autoscalers: what they would have done with the same work in the same world.

They are written from what the projects' documentation and sources say they do, and share no code with them.
Where a model had to choose, it chooses what is better for the peer; each module says where.
"""
