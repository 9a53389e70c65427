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

variable "load_balancer" {
  description = "Name of the network load balancer and of its target group."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?$", var.load_balancer)) && !startswith(var.load_balancer, "internal-")
    error_message = "A load balancer's name has at most 32 letters, digits and hyphens, begins and ends with no hyphen, and does not begin with internal-."
  }
}

variable "load_balancer_subnet_ids" {
  description = "Subnets of the load balancer, by zone."
  type        = map(string)
}

variable "load_balancer_security_group_ids" {
  description = "Security groups of the load balancer."
  type        = list(string)

  # A network load balancer that is made without any can't be given one later.
  validation {
    condition     = length(var.load_balancer_security_group_ids) > 0
    error_message = "The load balancer needs a security group."
  }
}

variable "port" {
  description = "TCP port of the Kubernetes API, on the load balancer and on the masters."
  type        = number
  default     = 6443

  validation {
    condition     = var.port > 0 && var.port < 65536
    error_message = "A port is a number from 1 to 65535."
  }
}

variable "masters" {
  description = "Masters by name. User data is cloud-init's, plain text of at most 16 KiB."
  type = map(object({
    name          = string
    subnet_id     = string
    instance_type = string
    image_id      = string
    root_disk = object({
      size_gib   = number
      type       = optional(string, "gp3")
      iops       = optional(number)
      throughput = optional(number)
    })
    user_data = string
    tags      = optional(map(string), {})
  }))

  validation {
    condition     = length(var.masters) % 2 == 1
    error_message = "etcd wants an odd number of masters."
  }

  validation {
    condition     = alltrue([for master in var.masters : length(base64encode(master.user_data)) <= 21848])
    error_message = "User data has at most 16384 bytes."
  }
}

variable "security_group_ids" {
  description = "Security groups of each master."
  type        = list(string)
}

variable "instance_profile" {
  description = "Name of the instance profile of each master."
  type        = string
}

variable "kms_key" {
  description = "ARN of the KMS key that encrypts disks. Null for AWS's own."
  type        = string
  default     = null
}
