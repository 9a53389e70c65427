# Launch configurations can't be changed: each change makes a new one, which the group takes before the old one goes.
# They know one instance type, and neither EFA, capacity reservations nor tags.

locals {
  configurations = var.pool.launch == "configuration" ? toset([var.pool.name]) : toset([])
}

resource "aws_launch_configuration" "this" {
  for_each = local.configurations

  name_prefix = "${each.key}-"

  image_id                    = local.image_id
  instance_type               = var.pool.instance_types[0].name
  iam_instance_profile        = var.instance_profile
  security_groups             = var.security_group_ids
  associate_public_ip_address = false
  enable_monitoring           = true
  spot_price                  = var.pool.market.kind == "spot" ? var.pool.market.max_price : null
  user_data_base64            = base64encode(local.user_data)

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    volume_type           = var.pool.root_disk.type
    volume_size           = var.pool.root_disk.size_gib
    iops                  = var.pool.root_disk.iops
    throughput            = var.pool.root_disk.throughput
    encrypted             = true
    delete_on_termination = true
  }

  dynamic "ebs_block_device" {
    for_each = var.pool.scratch_disks
    iterator = disk

    content {
      device_name           = disk.value.device
      volume_type           = disk.value.type
      volume_size           = disk.value.size_gib
      iops                  = disk.value.iops
      throughput            = disk.value.throughput
      encrypted             = true
      delete_on_termination = true
    }
  }

  lifecycle {
    create_before_destroy = true

    precondition {
      condition     = length(var.pool.instance_types) == 1 && alltrue([for type in var.pool.instance_types : type.weight == 1])
      error_message = "A launch configuration has one instance type, of weight 1."
    }

    precondition {
      condition     = contains(["on-demand", "spot"], var.pool.market.kind)
      error_message = "A launch configuration is either on demand or spot."
    }

    precondition {
      condition     = var.pool.market.kind != "spot" || var.pool.market.max_price != null
      error_message = "Spot machines from a launch configuration need a max_price: it is how AWS knows that they are spot."
    }

    precondition {
      condition     = var.kms_key == null
      error_message = "A launch configuration can't name a KMS key: its disks would have AWS's own."
    }

    precondition {
      condition     = var.pool.efa_interfaces == 0 && var.pool.capacity_reservation == null
      error_message = "EFA and capacity reservations need a launch template."
    }

    precondition {
      condition     = alltrue([for pool in var.pool.warm_pool[*] : pool.state != "Hibernated"])
      error_message = "Machines that hibernate need a launch template."
    }
  }
}
