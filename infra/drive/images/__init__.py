"""Machine images: baked by Packer, looked up, and deleted once unused.

::

    bake        bakes one image, from its inputs to AMIs in every region; a failure leaves nothing behind
    inputs      the inputs of an image as an archive, and their hash: equal inputs are not baked again
    packer      runs Packer; no other module does (packer-py builds its command lines)
    build_resources  what a build instance needs: a subnet, a security group, a key pair
    journal     records bakes in progress, so that a killed one can be cleaned up
    cleanup     deletes what a bake left in any region
    amis        looks up our AMIs
    usage       finds the users of AMIs
    listing     the state of each image, for `invoke images`
    prune       decides which AMIs can be deleted, and deletes them
"""
