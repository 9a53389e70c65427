resource "aws_instance" "master" {
  #checkov:skip=CKV_AWS_135:Types of the last ten years are EBS-optimized by themselves, and some older ones refuse the setting.
  for_each = var.masters

  ami                    = each.value.image_id
  instance_type          = each.value.instance_type
  subnet_id              = each.value.subnet_id
  vpc_security_group_ids = var.security_group_ids
  iam_instance_profile   = var.instance_profile
  user_data              = each.value.user_data
  monitoring             = true

  # A slip in the console does not take a member of etcd. Terraform lifts it itself to destroy one.
  disable_api_termination = true

  # The answer reaches the machine, and no pod behind its bridge.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    volume_type           = each.value.root_disk.type
    volume_size           = each.value.root_disk.size_gib
    iops                  = each.value.root_disk.iops
    throughput            = each.value.root_disk.throughput
    encrypted             = true
    kms_key_id            = var.kms_key
    delete_on_termination = true
  }

  tags = merge(var.tags, each.value.tags, { Name = each.value.name })

  # In RunInstances itself, as IAM policies ask for it; the disk's own tags would follow in a second call.
  volume_tags = merge(var.tags, each.value.tags, { Name = each.value.name })

  lifecycle {
    prevent_destroy = true

    # A new image would replace every master at once, new user data or another type stop every one: either way etcd
    # loses its quorum. They arrive when masters are rolled, one at a time; a replaced master gets all of them.
    #
    # Terraform reads the tags of all disks as one map, and would write volume_tags over those of a disk that was
    # attached later: a disk keeps the tags that it was made with.
    ignore_changes = [ami, instance_type, user_data, volume_tags, root_block_device[0].tags]
  }
}
