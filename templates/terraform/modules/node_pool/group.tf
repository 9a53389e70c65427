locals {
  tags     = merge(var.tags, var.pool.tags, { Name = var.pool.name })
  image_id = var.image_ids[var.pool.image]

  user_data = join("\n", ["#cloud-config", yamlencode({
    write_files = [{
      path        = "/etc/causeway/node.json"
      permissions = "0644"
      content     = jsonencode(var.pool.user_data)
    }]
  })])

  weighted = anytrue([for type in var.pool.instance_types : type.weight != 1])

  # A plain launch template does for one type, bought on demand; all else is said by a policy.
  mixed = var.pool.launch == "template" && (length(var.pool.instance_types) > 1 || local.weighted || contains(["spot", "mixed"], var.pool.market.kind))

  on_demand = {
    on-demand      = { base = 0, percent = 100 }
    capacity-block = { base = 0, percent = 100 }
    spot           = { base = 0, percent = 0 }
    mixed          = { base = var.pool.market.on_demand_base, percent = var.pool.market.on_demand_percent }
  }[var.pool.market.kind]

  group_tags = merge(
    { for key, value in var.pool.autoscaler_tags : key => { value = value, propagate = false } },
    { for key, value in local.tags : key => { value = value, propagate = true } },
  )

  placement_groups = setsubtract([var.pool.placement_group], ["none"])

  # How long a new machine counts as starting: until it has joined the cluster and its load means something.
  warmup_seconds = 300
}

resource "aws_placement_group" "this" {
  for_each = local.placement_groups

  name            = "${var.pool.name}-${each.key}"
  strategy        = each.key
  partition_count = each.key == "partition" ? 7 : null

  tags = merge(var.tags, var.pool.tags, { Name = "${var.pool.name}-${each.key}" })

  # The group leaves it before it goes. The name carries what forces a new one, so that both can be there. AWS deletes
  # it once its machines are gone.
  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_autoscaling_group" "this" {
  name                = var.pool.name
  min_size            = var.pool.min
  max_size            = var.pool.max
  vpc_zone_identifier = [for subnet in var.pool.subnets : var.subnet_ids[subnet]]
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
        spot_allocation_strategy                 = var.pool.market.strategy
        spot_max_price                           = var.pool.market.max_price
      }

      launch_template {
        launch_template_specification {
          launch_template_id = policy.value.id
          version            = policy.value.latest_version
        }

        dynamic "override" {
          for_each = var.pool.instance_types
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
  capacity_rebalance = var.pool.capacity_rebalance

  # A group that is made smaller must not choose which machines end: some of them are at work. The autoscaler ends those
  # that it has drained, by name, which this does not hinder.
  protect_from_scale_in = true

  # Moving machines between zones to even them out would end jobs that run on them.
  suspended_processes = ["AZRebalance"]

  health_check_type         = "EC2"
  health_check_grace_period = local.warmup_seconds
  default_instance_warmup   = local.warmup_seconds
  max_instance_lifetime     = var.pool.max_lifetime_seconds

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
    for_each = var.pool.warm_pool[*]
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
      condition     = var.pool.min <= var.pool.max
      error_message = "The least capacity of ${var.pool.name} (${var.pool.min}) is more than the most (${var.pool.max})."
    }

    precondition {
      condition     = length(base64encode(local.user_data)) <= 21848
      error_message = "User data has at most 16384 bytes: that of ${var.pool.name} has more."
    }

    precondition {
      condition     = var.pool.placement_group != "cluster" || length(var.pool.subnets) == 1
      error_message = "A cluster placement group is in one zone: give ${var.pool.name} one subnet."
    }

    precondition {
      condition     = var.pool.warm_pool == null || var.pool.market.kind == "on-demand"
      error_message = "A warm pool is bought on demand: ${var.pool.name} is ${var.pool.market.kind}."
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
  heartbeat_timeout      = var.pool.drain_timeout_seconds
  default_result         = "CONTINUE"
}
