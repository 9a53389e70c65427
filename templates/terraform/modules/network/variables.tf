variable "name" {
  description = "First part of every name here: <environment>-<site>."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,53}$", var.name))
    error_message = "A name has 1 to 54 lower-case letters, digits and hyphens, and starts with a letter."
  }
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "block" {
  description = "Address block of the VPC, /16 to /28."
  type        = string

  validation {
    condition     = can(cidrnetmask(var.block)) && try(tonumber(split("/", var.block)[1]) >= 16, false) && try(tonumber(split("/", var.block)[1]) <= 28, false)
    error_message = "A VPC's block is an IPv4 block from /16 to /28."
  }

  validation {
    condition     = try(cidrsubnet(var.block, 0, 0) == var.block, false)
    error_message = "A VPC's block is written by its first address."
  }
}

variable "subnets" {
  description = "Subnets by name, each in a zone by its name, or by its id where it has one. Tier public has a way to and from the internet; private and pods go out through NAT, if at all."
  type = map(object({
    tier    = string
    zone    = string
    zone_id = optional(string)
    block   = string
  }))

  validation {
    condition     = alltrue([for subnet in var.subnets : contains(["public", "private", "pods"], subnet.tier)])
    error_message = "A subnet's tier is public, private or pods."
  }

  validation {
    condition     = alltrue([for subnet in var.subnets : can(cidrnetmask(subnet.block))])
    error_message = "A subnet's block is an IPv4 block."
  }

  validation {
    condition     = length(distinct([for subnet in var.subnets : "${subnet.tier} ${subnet.zone}"])) == length(var.subnets)
    error_message = "There is one subnet of each tier in a zone."
  }
}

variable "nat" {
  description = "Zones whose private and pod subnets reach the internet, each with the zone of the NAT gateway that serves it."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "gateway_endpoints" {
  description = "AWS services with a gateway endpoint in every route table: full names by short ones, com.amazonaws.us-west-2.s3 by s3."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for service in var.gateway_endpoints : can(regex("[.](s3|dynamodb)$", service))])
    error_message = "Gateway endpoints exist for s3 and dynamodb."
  }
}

variable "interface_endpoints" {
  description = "AWS services with an interface endpoint in every zone's private subnet, paid by the hour: full names by short ones."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for service in var.interface_endpoints : can(regex("^(cn[.])?com[.]amazonaws[.][a-z0-9-]+[.]", service))])
    error_message = "A service is named in full: com.amazonaws.us-west-2.ssm."
  }
}

variable "flow_logs" {
  description = "Flow logs of the VPC: to an S3 bucket where bucket_arn is given, to CloudWatch Logs otherwise, by an IAM role named role_name, or <name>-flow-logs. Null for none."
  type = object({
    traffic        = optional(string, "REJECT")
    retention_days = optional(number, 365)
    role_name      = optional(string)
    bucket_arn     = optional(string)
  })
  default = null

  validation {
    condition     = alltrue([for logs in var.flow_logs[*] : contains(["ACCEPT", "REJECT", "ALL"], logs.traffic)])
    error_message = "The traffic that is logged is ACCEPT, REJECT or ALL."
  }

  validation {
    condition     = alltrue([for logs in var.flow_logs[*] : logs.bucket_arn == null || logs.role_name == null])
    error_message = "Flow logs go by role_name (CloudWatch Logs) or to bucket_arn (S3), not both."
  }
}

variable "inside" {
  description = "Blocks that belong to the cluster, wherever they are: racks, VPCs, pods, services, laptops."
  type        = set(string)

  validation {
    condition     = alltrue([for block in var.inside : can(cidrnetmask(block)) && block != "0.0.0.0/0"])
    error_message = "Inside is made of IPv4 blocks, and is never the whole internet."
  }
}

variable "api_port" {
  description = "TCP port of the Kubernetes API."
  type        = number
  default     = 6443
  nullable    = false
}

variable "overlay_ports" {
  description = "Ports of the pod network between nodes and masters, by name; none where pods are routed natively."
  type = map(object({
    protocol = string
    from     = number
    to       = number
  }))
  default = {
    vxlan = { protocol = "udp", from = 8472, to = 8472 }
  }
  nullable = false
}

variable "vpn_ports" {
  description = "Ports that laptops reach from anywhere, by name; the only ones open to the world."
  type = map(object({
    protocol = string
    port     = number
  }))
  default = {
    openvpn-udp = { protocol = "udp", port = 1194 }
    openvpn-tcp = { protocol = "tcp", port = 443 }
  }
  nullable = false

  validation {
    condition     = alltrue([for one in var.vpn_ports : contains(["tcp", "udp"], one.protocol) && one.port > 0 && one.port < 65536])
    error_message = "A VPN port is a tcp or udp port from 1 to 65535."
  }

  validation {
    condition     = alltrue([for one in var.vpn_ports : !contains([22, 3389], one.port)])
    error_message = "These ports are open to the world; SSH and remote desktop have no place among them."
  }
}
