"""Machine images: baked by Packer, looked up, and thrown away once nothing uses them.

::

    bake        one image, from its inputs to AMIs in every region; nothing stays behind when it fails
    inputs      what goes in, as an archive, and its hash: what was baked already is not baked again
    packer      the one place that knows how Packer is called (packer-py builds its command lines)
    progress    what Packer is doing, as a person sees it
    build_resources  what a build instance needs: a subnet, a security group, a key pair
    journal     bakes that were begun, so that one that was killed can be cleaned up after
    cleanup     take away whatever a bake left in any region
    amis        the AMIs there are
    usage       who uses them
    listing     what there is of each image, for `invoke images`
    prune       which may go
"""
