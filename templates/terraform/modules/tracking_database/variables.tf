variable "name" {
  description = "The database's identifier, and the first part of the names of what it needs."
  type        = string

  validation {
    condition     = can(regex("^[a-z](-?[a-z0-9])*$", var.name)) && length(var.name) <= 63
    error_message = "An identifier at RDS has 1 to 63 lower-case letters, digits and single hyphens, begins with a letter and does not end with a hyphen."
  }
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "vpc_id" {
  description = "The VPC."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets of two zones or more."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) >= 2
    error_message = "RDS wants subnets in two zones."
  }
}

variable "client_security_groups" {
  description = "Who may connect: security group ids by a name."
  type        = map(string)
}

variable "major_version" {
  description = "The major version of PostgreSQL. Minor ones are AWS's to install."
  type        = string
  default     = "17"

  validation {
    condition     = can(regex("^[0-9]+$", var.major_version))
    error_message = "A major version is a number: 17."
  }
}

variable "instance_class" {
  description = "The class of the instance."
  type        = string

  validation {
    condition     = startswith(var.instance_class, "db.")
    error_message = "A class at RDS begins with db., as in db.t4g.small."
  }
}

variable "storage_gib" {
  description = "Size of the disk."
  type        = number

  validation {
    condition     = var.storage_gib >= 20 && var.storage_gib <= 65536
    error_message = "A gp3 disk of PostgreSQL has 20 to 65536 GiB."
  }
}

variable "storage_limit_gib" {
  description = "Up to what size AWS lets the disk grow."
  type        = number

  validation {
    condition     = var.storage_limit_gib <= 65536
    error_message = "A gp3 disk of PostgreSQL has 65536 GiB at most."
  }
}

variable "multi_az" {
  description = "Whether a second zone has a standby."
  type        = bool
}

variable "backup_days" {
  description = "For how many days backups are kept."
  type        = number

  validation {
    condition     = var.backup_days >= 1 && var.backup_days <= 35
    error_message = "RDS keeps backups for 1 to 35 days."
  }
}

variable "password" {
  description = "The password of the user mlflow: from the secrets store, at run time, never in a file."
  type        = string
  sensitive   = true
}

variable "kms_key" {
  description = "ARN of the KMS key that encrypts it. Null for AWS's own."
  type        = string
  default     = null
}
