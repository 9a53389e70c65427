variable "name" {
  description = "First part of every name here: <environment>-<site>."
  type        = string
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}
}

variable "vpc_id" {
  description = "The VPC."
  type        = string
}

variable "instances" {
  description = "Machines by name. A public one has an elastic address and is in a public subnet; ssh_from are blocks outside the cluster that may reach its port 22. User data is cloud-init's, plain text of at most 16 KiB."
  type = map(object({
    name          = string
    role          = string
    subnet_id     = string
    instance_type = string
    image_id      = string
    root_disk = object({
      size_gib   = number
      type       = optional(string, "gp3")
      iops       = optional(number)
      throughput = optional(number)
    })
    public    = optional(bool, false)
    ssh_from  = optional(set(string), [])
    user_data = string
    tags      = optional(map(string), {})
  }))

  validation {
    condition     = alltrue([for one in var.instances : contains(["ssh-node", "access-gateway"], one.role)])
    error_message = "A role is ssh-node or access-gateway."
  }

  validation {
    condition     = alltrue(flatten([for one in var.instances : [for block in one.ssh_from : can(cidrnetmask(block))]]))
    error_message = "ssh_from is made of IPv4 blocks."
  }

  validation {
    condition     = alltrue([for one in var.instances : length(base64encode(one.user_data)) <= 21848])
    error_message = "User data has at most 16384 bytes."
  }
}

variable "security_groups" {
  description = "Ids of the security groups by purpose: ssh is every machine's, vpn the access gateways' as well."
  type = object({
    ssh = string
    vpn = string
  })
}

variable "instance_profiles" {
  description = "Names of instance profiles, by role."
  type        = map(string)
}

variable "kms_key" {
  description = "ARN of the KMS key that encrypts disks. Null for AWS's own."
  type        = string
  default     = null
}
