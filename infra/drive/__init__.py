"""The only step that touches the world: tools, clouds, disks. Everything heavy is imported late."""
