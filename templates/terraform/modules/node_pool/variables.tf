variable "pool" {
  description = "The pool in this region: one Auto Scaling group and what its machines are made from."
  type = object({
    # Of the group, of its launch template and of its machines.
    name = string
    # A key of image_ids.
    image = string
    # Keys of subnet_ids.
    subnets = list(string)

    # In order of preference, and how many units of capacity one counts for.
    instance_types = list(object({
      name   = string
      weight = optional(number, 1)
    }))

    # How machines are bought. Kind mixed: on demand up to on_demand_base units and on_demand_percent of what is above.
    # Kind capacity-block: from the Capacity Block that capacity_reservation names. Strategy chooses among spot pools.
    # max_price is in USD an hour; null for the on-demand price.
    market = optional(object({
      kind              = optional(string, "on-demand")
      on_demand_base    = optional(number, 0)
      on_demand_percent = optional(number, 0)
      strategy          = optional(string, "price-capacity-optimized")
      max_price         = optional(string)
    }), {})

    # The least and the most capacity, in units.
    min = optional(number, 0)
    max = number

    # A launch template, or a launch configuration for accounts that still need one.
    launch = optional(string, "template")
    # Whether AWS replaces a spot machine as soon as it expects to interrupt it, and ends the one at risk.
    capacity_rebalance = optional(bool, false)

    # The device is the image's root device.
    root_disk = object({
      device     = optional(string, "/dev/sda1")
      size_gib   = number
      type       = optional(string, "gp3")
      iops       = optional(number)
      throughput = optional(number)
    })
    # Further volumes, which live and end with the machine.
    scratch_disks = optional(list(object({
      device     = string
      size_gib   = number
      type       = optional(string, "gp3")
      iops       = optional(number)
      throughput = optional(number)
    })), [])

    # Placement of machines: none, cluster (close together, in one zone), spread (each on hardware of its
    # own, 7 a zone) or partition (in 7 partitions that share no rack).
    placement_group = optional(string, "none")
    # Elastic Fabric Adapters of a machine, one a network card: p4d has 4, p5 32. 0 for an ordinary network interface.
    efa_interfaces = optional(number, 0)

    # One reservation by id, a resource group of them by ARN, or by preference any that is open, none, or nothing but
    # reservations. Null for AWS's default, open.
    capacity_reservation = optional(object({
      preference     = optional(string, "open")
      id             = optional(string)
      resource_group = optional(string)
    }))

    # Machines that are started beforehand and wait: how (Stopped, Running, Hibernated), how many at least, how many
    # with those in service, and whether one goes back on scale-in.
    warm_pool = optional(object({
      state        = optional(string, "Stopped")
      min          = optional(number, 0)
      max_prepared = optional(number)
      reuse        = optional(bool, true)
    }))

    # How old a machine may get before it is replaced. Null for no limit.
    max_lifetime_seconds = optional(number)
    # How long a machine that is to end waits for its node to drain: 30 to 7200.
    drain_timeout_seconds = optional(number, 900)

    # On the group and its machines, volumes and network interfaces.
    tags = optional(map(string), {})
    # On the group alone: what an autoscaler must know of an empty group.
    autoscaler_tags = optional(map(string), {})
    # Plain facts for the node, never a secret: written to /etc/causeway/node.json.
    user_data = any
  })

  validation {
    condition     = length(var.pool.instance_types) > 0 && length(distinct(var.pool.instance_types[*].name)) == length(var.pool.instance_types)
    error_message = "A group has one or more instance types, each named once."
  }

  validation {
    condition     = contains(["on-demand", "spot", "mixed", "capacity-block"], var.pool.market.kind)
    error_message = "The kind of market is on-demand, spot, mixed or capacity-block."
  }

  validation {
    condition     = contains(["template", "configuration"], var.pool.launch)
    error_message = "Launch is template or configuration."
  }

  validation {
    condition     = contains(["none", "cluster", "spread", "partition"], var.pool.placement_group)
    error_message = "A placement group is none, cluster, spread or partition."
  }

  validation {
    condition     = alltrue([for one in var.pool.capacity_reservation[*] : one.id == null || one.resource_group == null])
    error_message = "Either a reservation or a resource group of reservations is named."
  }
}

variable "tags" {
  description = "Tags on everything, machines, volumes and network interfaces included."
  type        = map(string)
  default     = {}
}

variable "subnet_ids" {
  description = "The region's subnets, by name."
  type        = map(string)
}

variable "image_ids" {
  description = "The region's machine images, by name."
  type        = map(string)
}

variable "security_group_ids" {
  description = "Security groups of each machine."
  type        = list(string)
}

variable "instance_profile" {
  description = "Name of the instance profile of each machine."
  type        = string
}

variable "kms_key" {
  description = "ARN of the KMS key that encrypts disks. Null for AWS's own."
  type        = string
  default     = null
}
