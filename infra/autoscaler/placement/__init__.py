"""Where pending pods are placed: on running machines, on booting ones, and on those that a group would
launch."""
