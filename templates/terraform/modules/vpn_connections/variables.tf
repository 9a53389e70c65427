variable "name" {
  description = "First part of the names of customer gateways and connections."
  type        = string
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "vpn_gateway_id" {
  description = "The virtual private gateway, attached to its VPC. Null with a transit gateway."
  type        = string
  default     = null
}

variable "transit_gateway" {
  description = "The transit gateway and its route table. Null with a virtual private gateway."
  type = object({
    id          = string
    route_table = string
  })
  default = null
}

variable "customer_gateways" {
  description = "Public addresses of physical sites, by name."
  type = map(object({
    address = string
    asn     = number
    tags    = optional(map(string), {})
  }))

  validation {
    condition     = alltrue([for gateway in var.customer_gateways : can(cidrnetmask("${gateway.address}/32"))])
    error_message = "A customer gateway has an IPv4 address."
  }

  validation {
    condition     = alltrue([for gateway in var.customer_gateways : gateway.asn >= 1 && gateway.asn <= 4294967294])
    error_message = "An ASN is a number from 1 to 4294967294."
  }
}

variable "connections" {
  description = "VPN connections by name, each with two tunnels: their inside /30 and the name of their key in tunnel_keys. With static routes instead of BGP where static_routes is not empty."
  type = map(object({
    customer_gateway = string
    static_routes    = optional(set(string), [])
    startup_action   = optional(string, "start")
    tunnels = list(object({
      inside = string
      key    = string
    }))
    tags = optional(map(string), {})
  }))

  validation {
    condition     = alltrue([for one in var.connections : length(one.tunnels) == 2])
    error_message = "A VPN connection has two tunnels."
  }

  validation {
    condition     = alltrue(flatten([for one in var.connections : [for tunnel in one.tunnels : startswith(tunnel.inside, "169.254.") && endswith(tunnel.inside, "/30")]]))
    error_message = "A tunnel's inside block is a /30 of 169.254.0.0/16."
  }

  validation {
    condition     = alltrue(flatten([for one in var.connections : [for tunnel in one.tunnels : try(cidrsubnet(tunnel.inside, 0, 0) == tunnel.inside, false)]]))
    error_message = "A tunnel's inside block is written by its first address."
  }

  validation {
    condition     = alltrue(flatten([for one in var.connections : [for tunnel in one.tunnels : !can(regex("^169\\.254\\.([0-5]\\.0|169\\.252)/30$", tunnel.inside))]]))
    error_message = "AWS keeps 169.254.0.0/30 to 169.254.5.0/30 and 169.254.169.252/30 for itself."
  }

  validation {
    condition     = length(distinct(flatten([for one in var.connections : one.tunnels[*].inside]))) == length(flatten([for one in var.connections : one.tunnels[*].inside]))
    error_message = "Each tunnel of the gateway has an inside block of its own."
  }

  validation {
    condition     = alltrue([for one in var.connections : contains(["start", "add"], one.startup_action)])
    error_message = "The startup action is start (AWS begins) or add (the site begins, as it must behind NAT)."
  }
}

variable "alarms" {
  description = "CloudWatch alarms on each connection, and the addresses that they are mailed to. Null for none."
  type = object({
    emails = set(string)
  })
  default = null
}

variable "tunnel_keys" {
  description = "Pre-shared keys by name: 8 to 64 letters, digits, dots and underscores, not starting with 0. Given at run time, never written to a file."
  type        = map(string)
  sensitive   = true

  validation {
    condition     = alltrue([for key in values(var.tunnel_keys) : can(regex("^[A-Za-z1-9._][A-Za-z0-9._]{7,63}$", key))])
    error_message = "A pre-shared key has 8 to 64 letters, digits, dots and underscores, and does not start with 0."
  }
}

variable "proposals" {
  description = "What AWS accepts and for how long. Lifetimes in seconds; both sides renew before they are over."
  type = object({
    encryption         = optional(set(string), ["AES256-GCM-16"])
    integrity          = optional(set(string), ["SHA2-256", "SHA2-384", "SHA2-512"])
    dh_groups          = optional(set(number), [19, 20, 21])
    phase1_lifetime    = optional(number, 28800)
    phase2_lifetime    = optional(number, 3600)
    rekey_margin       = optional(number, 540)
    rekey_fuzz_percent = optional(number, 100)
    dpd_timeout        = optional(number, 40)
    replay_window      = optional(number, 1024)
    lifecycle_control  = optional(bool, true)
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.proposals.phase1_lifetime >= 900 && var.proposals.phase1_lifetime <= 28800 && var.proposals.phase2_lifetime >= 900 && var.proposals.phase2_lifetime <= 3600
    error_message = "Lifetimes are 900 to 28800 s in phase 1 and 900 to 3600 s in phase 2."
  }

  validation {
    condition     = var.proposals.rekey_margin >= 60 && var.proposals.rekey_margin <= var.proposals.phase2_lifetime / 2 && var.proposals.rekey_fuzz_percent >= 0 && var.proposals.rekey_fuzz_percent <= 100
    error_message = "The rekey margin is from 60 s to half of phase 2's lifetime, and its fuzz 0 to 100 percent."
  }

  validation {
    condition     = var.proposals.dpd_timeout >= 30
    error_message = "AWS waits for a dead peer for 30 s or longer."
  }

  validation {
    condition     = var.proposals.replay_window >= 64 && var.proposals.replay_window <= 2048
    error_message = "The replay window is 64 to 2048 packets."
  }
}
