variable "name" {
  description = "Name of the group, of its launch template and of its machines."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9()./_-]{2,127}$", var.name))
    error_message = "A name has 3 to 128 letters, digits and ( ) . / _ -, as a launch template's."
  }
}

variable "tags" {
  description = "Tags on everything, machines, volumes and network interfaces included."
  type        = map(string)
  default     = {}
}

variable "autoscaler_tags" {
  description = "Tags on the group alone, which tell an autoscaler what an empty group would offer. Machines do without them."
  type        = map(string)
  default     = {}
}

variable "subnet_ids" {
  description = "Subnets that machines start in."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) > 0
    error_message = "A group needs a subnet."
  }
}

variable "security_group_ids" {
  description = "Security groups of each machine."
  type        = list(string)
}

variable "instance_profile" {
  description = "Name of the instance profile of each machine."
  type        = string
}

variable "image_id" {
  description = "The machine image."
  type        = string
}

variable "instance_types" {
  description = "Instance types in order of preference, and how many units of capacity one counts for."
  type = list(object({
    name   = string
    weight = optional(number, 1)
  }))

  validation {
    condition     = length(var.instance_types) > 0 && length(distinct(var.instance_types[*].name)) == length(var.instance_types)
    error_message = "A group has one or more instance types, each named once."
  }

  validation {
    condition     = alltrue([for type in var.instance_types : type.weight >= 1 && type.weight <= 999 && floor(type.weight) == type.weight])
    error_message = "A weight is a whole number from 1 to 999."
  }
}

variable "market" {
  description = "How machines are bought. Kind mixed: on demand up to on_demand_base units and on_demand_percent of what is above. Kind capacity-block: from the Capacity Block that capacity_reservation names. Strategy chooses among spot pools. max_price is in USD an hour; null for the on-demand price."
  type = object({
    kind              = optional(string, "on-demand")
    on_demand_base    = optional(number, 0)
    on_demand_percent = optional(number, 0)
    strategy          = optional(string, "price-capacity-optimized")
    max_price         = optional(string)
  })
  default = {}

  validation {
    condition     = contains(["on-demand", "spot", "mixed", "capacity-block"], var.market.kind)
    error_message = "The kind of market is on-demand, spot, mixed or capacity-block."
  }

  validation {
    condition     = var.market.on_demand_base >= 0 && var.market.on_demand_percent >= 0 && var.market.on_demand_percent <= 100
    error_message = "on_demand_base is 0 or more, on_demand_percent is 0 to 100."
  }

  validation {
    condition     = contains(["price-capacity-optimized", "capacity-optimized", "capacity-optimized-prioritized", "lowest-price"], var.market.strategy)
    error_message = "The strategy is price-capacity-optimized, capacity-optimized, capacity-optimized-prioritized or lowest-price."
  }

  validation {
    condition     = var.market.max_price == null || try(tonumber(var.market.max_price) > 0, false)
    error_message = "max_price is a price in USD an hour, as text."
  }
}

variable "capacity_rebalance" {
  description = "Whether AWS replaces a spot machine as soon as it expects to interrupt it, and ends the one at risk."
  type        = bool
  default     = false
  nullable    = false
}

variable "launch" {
  description = "What machines are made from: a launch template, or a launch configuration for accounts that still need one."
  type        = string
  default     = "template"

  validation {
    condition     = contains(["template", "configuration"], var.launch)
    error_message = "Launch is template or configuration."
  }
}

variable "min" {
  description = "The least capacity, in units."
  type        = number
  default     = 0

  validation {
    condition     = var.min >= 0
    error_message = "The least capacity is 0 or more."
  }
}

variable "max" {
  description = "The most capacity, in units."
  type        = number
}

variable "root_disk" {
  description = "Root volume. The device is the image's root device."
  type = object({
    device     = optional(string, "/dev/sda1")
    size_gib   = number
    type       = optional(string, "gp3")
    iops       = optional(number)
    throughput = optional(number)
  })
}

variable "scratch_disks" {
  description = "Further volumes, which live and end with the machine."
  type = list(object({
    device     = string
    size_gib   = number
    type       = optional(string, "gp3")
    iops       = optional(number)
    throughput = optional(number)
  }))
  default = []

  validation {
    condition     = length(distinct(var.scratch_disks[*].device)) == length(var.scratch_disks)
    error_message = "Each volume has a device of its own."
  }
}

variable "placement_group" {
  description = "How machines stand to each other: none, cluster (close together, in one zone), spread (each on hardware of its own, 7 a zone) or partition (in 7 partitions that share no rack)."
  type        = string
  default     = "none"

  validation {
    condition     = contains(["none", "cluster", "spread", "partition"], var.placement_group)
    error_message = "A placement group is none, cluster, spread or partition."
  }
}

variable "efa_interfaces" {
  description = "Elastic Fabric Adapters of a machine, one a network card: p4d has 4, p5 32. 0 for an ordinary network interface."
  type        = number
  default     = 0

  validation {
    condition     = var.efa_interfaces >= 0 && floor(var.efa_interfaces) == var.efa_interfaces
    error_message = "The number of adapters is a whole number, 0 or more."
  }
}

variable "capacity_reservation" {
  description = "Reserved capacity: one reservation by id, a resource group of them by ARN, or by preference any that is open, none, or nothing but reservations. Null for AWS's default, open."
  type = object({
    preference     = optional(string, "open")
    id             = optional(string)
    resource_group = optional(string)
  })
  default = null

  validation {
    condition     = alltrue([for one in var.capacity_reservation[*] : contains(["open", "none", "capacity-reservations-only"], one.preference)])
    error_message = "The preference is open, none or capacity-reservations-only."
  }

  validation {
    condition     = alltrue([for one in var.capacity_reservation[*] : one.id == null || one.resource_group == null])
    error_message = "Either a reservation or a resource group of reservations is named."
  }
}

variable "warm_pool" {
  description = "Machines that are started beforehand and wait: how (Stopped, Running, Hibernated), how many at least, how many with those in service, and whether one goes back on scale-in. Null for none."
  type = object({
    state        = optional(string, "Stopped")
    min          = optional(number, 0)
    max_prepared = optional(number)
    reuse        = optional(bool, true)
  })
  default = null

  validation {
    condition     = alltrue([for pool in var.warm_pool[*] : contains(["Stopped", "Running", "Hibernated"], pool.state)])
    error_message = "A warm pool's machines are Stopped, Running or Hibernated."
  }
}

variable "warmup_seconds" {
  description = "How long a new machine counts as starting: until it has joined the cluster and its load means something."
  type        = number
  default     = 300
}

variable "max_lifetime_seconds" {
  description = "How old a machine may get before it is replaced. Null for no limit."
  type        = number
  default     = null

  validation {
    condition     = alltrue([for seconds in var.max_lifetime_seconds[*] : seconds >= 86400 && seconds <= 31536000])
    error_message = "A machine's lifetime is limited to 86400 s (a day) up to 31536000 s (365 days)."
  }
}

variable "drain_timeout_seconds" {
  description = "How long a machine that is to end waits for its node to drain. AWS waits 30 s to 7200 s at a time; who drains for longer sends heartbeats."
  type        = number
  default     = 900
}

variable "user_data" {
  description = "cloud-init user data as plain text, at most 16 KiB."
  type        = string

  validation {
    condition     = length(base64encode(var.user_data)) <= 21848
    error_message = "User data has at most 16384 bytes."
  }
}

variable "kms_key" {
  description = "ARN of the KMS key that encrypts disks. Null for AWS's own."
  type        = string
  default     = null
}
