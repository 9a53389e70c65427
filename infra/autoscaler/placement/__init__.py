"""Where pending pods go: on machines that run, on machines that boot, and on those a group would launch."""
