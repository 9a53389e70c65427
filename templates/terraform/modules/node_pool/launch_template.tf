locals {
  templates = var.pool.launch == "template" ? toset([var.pool.name]) : toset([])
}

resource "aws_launch_template" "this" {
  for_each = local.templates

  name                   = each.key
  description            = "Nodes of ${each.key}."
  update_default_version = true

  image_id      = local.image_id
  instance_type = var.pool.instance_types[0].name
  user_data     = base64encode(local.user_data)

  # Security groups belong to network interfaces where these are listed.
  vpc_security_group_ids = var.pool.efa_interfaces == 0 ? var.security_group_ids : null

  iam_instance_profile {
    name = var.instance_profile
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  monitoring {
    enabled = true
  }

  dynamic "block_device_mappings" {
    for_each = concat([var.pool.root_disk], var.pool.scratch_disks)
    iterator = disk

    content {
      device_name = disk.value.device

      ebs {
        volume_type           = disk.value.type
        volume_size           = disk.value.size_gib
        iops                  = disk.value.iops
        throughput            = disk.value.throughput
        encrypted             = true
        kms_key_id            = var.kms_key
        delete_on_termination = true
      }
    }
  }

  # One adapter a network card. The first carries IP as well and is the machine's only address; the others carry
  # the fabric alone, or a p5 would take 32 addresses and answer from any of them (EC2 User Guide, "Maximize
  # network bandwidth on Amazon EC2 instances with multiple network cards").
  dynamic "network_interfaces" {
    for_each = range(var.pool.efa_interfaces)
    iterator = card

    content {
      network_card_index    = card.value
      device_index          = card.value == 0 ? 0 : 1
      interface_type        = card.value == 0 ? "efa" : "efa-only"
      security_groups       = var.security_group_ids
      delete_on_termination = true
    }
  }

  # Machines of a Capacity Block are their own kind of purchase, and always name it.
  dynamic "instance_market_options" {
    for_each = [for kind in [var.pool.market.kind] : kind if kind == "capacity-block"]
    iterator = market

    content {
      market_type = market.value
    }
  }

  dynamic "capacity_reservation_specification" {
    for_each = var.pool.capacity_reservation[*]
    iterator = reservation

    content {
      # AWS takes a preference or a target.
      capacity_reservation_preference = local.reservation_targeted ? null : reservation.value.preference

      dynamic "capacity_reservation_target" {
        for_each = local.reservation_targeted ? [reservation.value] : []

        content {
          capacity_reservation_id                 = capacity_reservation_target.value.id
          capacity_reservation_resource_group_arn = capacity_reservation_target.value.resource_group
        }
      }
    }
  }

  dynamic "hibernation_options" {
    for_each = [for pool in var.pool.warm_pool[*] : pool if pool.state == "Hibernated"]

    content {
      configured = true
    }
  }

  dynamic "tag_specifications" {
    for_each = toset(["instance", "network-interface", "volume"])
    iterator = made

    content {
      resource_type = made.key
      tags          = local.tags
    }
  }

  tags = local.tags

  # The group moves on before the old template goes.
  lifecycle {
    create_before_destroy = true

    precondition {
      condition     = var.pool.market.kind != "spot" || !local.reservation_targeted
      error_message = "Spot machines never run in reserved capacity: ${each.key} names a reservation."
    }

    precondition {
      condition     = var.pool.market.kind != "capacity-block" || local.reservation_targeted
      error_message = "Machines of a Capacity Block need its id: ${each.key} names no reservation."
    }

    precondition {
      condition     = var.pool.market.kind != "capacity-block" || length(var.pool.instance_types) == 1 && !local.weighted
      error_message = "A Capacity Block is of one instance type, of weight 1: ${each.key}."
    }
  }
}

locals {
  reservation_targeted = anytrue([for one in var.pool.capacity_reservation[*] : one.id != null || one.resource_group != null])
}
