variable "name" {
  description = "First part of every name here: <environment>-<site>."
  type        = string
}

variable "tags" {
  description = "Tags on everything: cluster, environment, managed-by, site."
  type        = map(string)
  default     = {}
}

variable "network" {
  description = "The VPC: its block, subnets by name, the NAT gateway's zone for each zone that has a way out, endpoints of AWS services (full names by short ones), flow logs (null for none), the blocks that belong to the cluster, the ports of the pod network, and those that the world may reach for the VPN."
  type = object({
    block = string
    subnets = map(object({
      tier    = string
      zone    = string
      zone_id = optional(string)
      block   = string
    }))
    nat                 = map(string)
    gateway_endpoints   = map(string)
    interface_endpoints = optional(map(string), {})
    flow_logs = optional(object({
      traffic        = string
      retention_days = number
    }))
    inside = set(string)
    overlay_ports = map(object({
      protocol = string
      from     = number
      to       = number
    }))
    vpn_ports = map(object({
      protocol = string
      port     = number
    }))
  })
}

variable "overlay" {
  description = "Blocks of pods and services, and the access gateway (by host name) that leads the rest of the VPC to them. Null without any."
  type = object({
    blocks = set(string)
    router = string
  })
  default = null
}

variable "vpn" {
  description = "VPN to physical sites: Amazon's ASN at the virtual private gateway, null with a transit gateway; the sites' public addresses, the connections to them, who hears of alarms on these (null for none), and what is proposed on them (times in seconds). Null without any."
  type = object({
    asn = optional(number)
    customer_gateways = map(object({
      address = string
      asn     = number
      tags    = map(string)
    }))
    connections = map(object({
      customer_gateway = string
      static_routes    = set(string)
      startup_action   = string
      tunnels = list(object({
        inside = string
        key    = string
      }))
      tags = map(string)
    }))
    alarms = optional(object({
      emails = set(string)
    }))
    proposals = object({
      encryption         = set(string)
      integrity          = set(string)
      dh_groups          = set(number)
      phase1_lifetime    = number
      phase2_lifetime    = number
      rekey_margin       = number
      rekey_fuzz_percent = number
      dpd_timeout        = number
      replay_window      = number
    })
  })
  default = null
}

variable "transit_gateway" {
  description = "The transit gateway that VPN connections attach to, and its route table. Null with a virtual private gateway."
  type = object({
    id          = string
    route_table = string
  })
  default = null
}

variable "tunnel_keys" {
  description = "Pre-shared keys of the VPN tunnels, by name."
  type        = map(string)
  default     = {}
  sensitive   = true
}

variable "images" {
  description = "Machine images by name: the id of a baked one, or the owner, name pattern and architecture of the published one to start from."
  type = map(object({
    id           = optional(string)
    owner        = string
    name         = string
    architecture = string
  }))
}

variable "instance_profiles" {
  description = "Names of the instance profiles by role: node, control-plane, ssh-node, access-gateway."
  type        = map(string)
}

variable "roles" {
  description = "ARNs of the machines' roles by name: node, control-plane, ssh-node, access-gateway."
  type        = map(string)
}

# Passed on as they are: typed by the module node_pool's variable pool.
variable "node_pools" {
  description = "Node pools by name, one Auto Scaling group each."
  type        = any
  default     = {}
}

variable "control_plane" {
  description = "Kubernetes masters by name, and the load balancer in front of them. Null where there is none in this region."
  type = object({
    load_balancer = string
    port          = number
    masters = map(object({
      name          = string
      hostname      = string
      fqdn          = string
      subnet        = string
      instance_type = string
      image         = string
      root_disk = object({
        device     = string
        size_gib   = number
        type       = string
        iops       = optional(number)
        throughput = optional(number)
      })
      tags = map(string)
      user_data = object({
        cluster     = string
        environment = string
        domain      = string
        site        = string
        role        = string
        hostname    = string
        labels      = map(string)
        taints      = list(string)
      })
    }))
  })
  default = null
}

variable "instances" {
  description = "Machines with a name of their own, by host name: SSH nodes and VPN end points."
  type = map(object({
    name          = string
    role          = string
    hostname      = string
    fqdn          = string
    public_name   = optional(string)
    subnet        = string
    instance_type = string
    image         = string
    root_disk = object({
      device     = string
      size_gib   = number
      type       = string
      iops       = optional(number)
      throughput = optional(number)
    })
    public   = bool
    ssh_from = set(string)
    tags     = map(string)
    user_data = object({
      cluster     = string
      environment = string
      domain      = string
      site        = string
      role        = string
      hostname    = string
      labels      = map(string)
      taints      = list(string)
    })
  }))
  default = {}
}

variable "storage" {
  description = "EFS file systems and S3 buckets of this region, by their names in the spec."
  type = object({
    file_systems = map(object({
      name               = string
      performance        = string
      throughput         = string
      archive_after_days = optional(number)
      backup             = bool
      access_points = map(object({
        path = string
        uid  = number
        gid  = number
        mode = string
      }))
      homes   = bool
      subnets = list(string)
      tags    = map(string)
    }))
    buckets = map(object({
      bucket        = string
      versions_days = number
      archive_days  = optional(number)
      archive_class = string
      expire        = map(number)
      tags          = map(string)
    }))
  })
  default = {
    file_systems = {}
    buckets      = {}
  }
}

variable "kms_key" {
  description = "ARN of the KMS key that encrypts disks, file systems and buckets. Null for AWS's own."
  type        = string
  default     = null
}
