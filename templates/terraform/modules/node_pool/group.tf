locals {
  tags = merge(var.tags, { Name = var.name })

  weighted = anytrue([for type in var.instance_types : type.weight != 1])

  # A plain launch template does for one type, bought on demand; all else is said by a policy.
  mixed = var.launch == "template" && (length(var.instance_types) > 1 || local.weighted || contains(["spot", "mixed"], var.market.kind))

  on_demand = {
    on-demand      = { base = 0, percent = 100 }
    capacity-block = { base = 0, percent = 100 }
    spot           = { base = 0, percent = 0 }
    mixed          = { base = var.market.on_demand_base, percent = var.market.on_demand_percent }
  }[var.market.kind]

  group_tags = merge(
    { for key, value in var.autoscaler_tags : key => { value = value, propagate = false } },
    { for key, value in local.tags : key => { value = value, propagate = true } },
  )

  placement_groups = setsubtract([var.placement_group], ["none"])
}

resource "aws_placement_group" "this" {
  for_each = local.placement_groups

  name            = "${var.name}-${each.key}"
  strategy        = each.key
  partition_count = each.key == "partition" ? 7 : null

  tags = merge(var.tags, { Name = "${var.name}-${each.key}" })

  # The group leaves it before it goes. The name carries what forces a new one, so that both can be there. AWS deletes
  # it once its machines are gone.
  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_autoscaling_group" "this" {
  name                = var.name
  min_size            = var.min
  max_size            = var.max
  vpc_zone_identifier = var.subnet_ids
  placement_group     = one([for group in aws_placement_group.this : group.name])

  # Said, so that one that somebody else attaches is found and taken away.
  load_balancers    = []
  target_group_arns = []

  launch_configuration = one([for configuration in aws_launch_configuration.this : configuration.name])

  # Versions by number rather than $Latest, so that a plan shows that new machines will differ.
  dynamic "launch_template" {
    for_each = { for name, template in aws_launch_template.this : name => template if !local.mixed }

    content {
      id      = launch_template.value.id
      version = launch_template.value.latest_version
    }
  }

  dynamic "mixed_instances_policy" {
    for_each = { for name, template in aws_launch_template.this : name => template if local.mixed }
    iterator = policy

    content {
      instances_distribution {
        on_demand_allocation_strategy            = "prioritized"
        on_demand_base_capacity                  = local.on_demand.base
        on_demand_percentage_above_base_capacity = local.on_demand.percent
        spot_allocation_strategy                 = var.market.strategy
        spot_max_price                           = var.market.max_price
      }

      launch_template {
        launch_template_specification {
          launch_template_id = policy.value.id
          version            = policy.value.latest_version
        }

        dynamic "override" {
          for_each = var.instance_types
          iterator = type

          content {
            instance_type     = type.value.name
            weighted_capacity = local.weighted ? type.value.weight : null
          }
        }
      }
    }
  }

  # A replacement starts when AWS foresees an interruption, and the node at risk is drained and ended.
  capacity_rebalance = var.capacity_rebalance

  # A group that is made smaller must not choose which machines end: some of them are at work. The autoscaler ends those
  # that it has drained, by name, which this does not hinder.
  protect_from_scale_in = true

  # Moving machines between zones to even them out would end jobs that run on them.
  suspended_processes = ["AZRebalance"]

  health_check_type         = "EC2"
  health_check_grace_period = var.warmup_seconds
  default_instance_warmup   = var.warmup_seconds
  max_instance_lifetime     = var.max_lifetime_seconds

  # Capacity may take hours to come, or never; an apply that waits for it would fail with everything in place.
  wait_for_capacity_timeout = "0"

  # A group goes once its machines are gone.
  force_delete = false

  enabled_metrics = [
    "GroupDesiredCapacity",
    "GroupInServiceCapacity",
    "GroupInServiceInstances",
    "GroupMaxSize",
    "GroupMinSize",
    "GroupPendingInstances",
    "GroupTerminatingInstances",
    "GroupTotalInstances",
  ]

  dynamic "warm_pool" {
    for_each = var.warm_pool[*]
    iterator = pool

    content {
      pool_state                  = pool.value.state
      min_size                    = pool.value.min
      max_group_prepared_capacity = pool.value.max_prepared

      instance_reuse_policy {
        reuse_on_scale_in = pool.value.reuse
      }
    }
  }

  dynamic "tag" {
    for_each = local.group_tags

    content {
      key                 = tag.key
      value               = tag.value.value
      propagate_at_launch = tag.value.propagate
    }
  }

  # Machines with many GPUs and disks take long to end.
  timeouts {
    delete = "30m"
  }

  lifecycle {
    # How many there are is for the autoscaler to say.
    ignore_changes = [desired_capacity]

    precondition {
      condition     = var.min <= var.max
      error_message = "The least capacity of ${var.name} (${var.min}) is more than the most (${var.max})."
    }

    precondition {
      condition     = var.placement_group != "cluster" || length(var.subnet_ids) == 1
      error_message = "A cluster placement group is in one zone: give ${var.name} one subnet."
    }

    precondition {
      condition     = var.warm_pool == null || var.market.kind == "on-demand"
      error_message = "A warm pool is bought on demand: ${var.name} is ${var.market.kind}."
    }
  }
}

# A resource of its own: hooks written in the group are read when it is made and never again, so that a new timeout
# would not arrive and drift would not show. It also goes first when the group is destroyed, which then does not
# wait for drains that nobody will do.
resource "aws_autoscaling_lifecycle_hook" "drain" {
  name                   = "drain"
  autoscaling_group_name = aws_autoscaling_group.this.name
  lifecycle_transition   = "autoscaling:EC2_INSTANCE_TERMINATING"
  heartbeat_timeout      = min(max(var.drain_timeout_seconds, 30), 7200)
  default_result         = "CONTINUE"
}
