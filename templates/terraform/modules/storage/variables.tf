variable "name" {
  description = "First part of every name here: <environment>-<site>."
  type        = string
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}
}

variable "file_systems" {
  description = <<-EOT
    EFS file systems by name.
      name: AWS name; it never changes, since EFS would make a new file system.
      archive_after_days: days without access until a file moves to infrequent access; null for never.
      access_points: directories by name, with an owner that all access maps to; owner 0 maps nobody.
      subnet_ids: subnets of the mount targets, by zone.
      root_roles: ARNs of further roles whose root is root here.
  EOT
  type = map(object({
    name               = string
    performance        = optional(string, "generalPurpose")
    throughput         = optional(string, "elastic")
    archive_after_days = optional(number)
    backup             = optional(bool, true)
    access_points = optional(map(object({
      path = string
      uid  = number
      gid  = number
      mode = optional(string, "0755")
    })), {})
    subnet_ids = map(string)
    root_roles = optional(list(string), [])
    tags       = optional(map(string), {})
  }))
  default = {}

  validation {
    condition     = alltrue([for one in var.file_systems : length(one.name) >= 1 && length(one.name) <= 256])
    error_message = "A file system's name has 1 to 256 characters."
  }

  validation {
    condition     = alltrue([for one in var.file_systems : contains(["generalPurpose", "maxIO"], one.performance)])
    error_message = "The performance mode is generalPurpose or maxIO."
  }

  validation {
    condition     = alltrue([for one in var.file_systems : contains(["elastic", "bursting"], one.throughput)])
    error_message = "The throughput mode is elastic or bursting."
  }

  validation {
    condition     = alltrue([for one in var.file_systems : one.performance != "maxIO" || one.throughput != "elastic"])
    error_message = "EFS has no elastic throughput in performance mode maxIO: choose bursting, or generalPurpose."
  }

  validation {
    condition     = alltrue([for one in var.file_systems : one.archive_after_days == null || contains([1, 7, 14, 30, 60, 90, 180, 270, 365], coalesce(one.archive_after_days, 1))])
    error_message = "EFS archives after 1, 7, 14, 30, 60, 90, 180, 270 or 365 days."
  }

  validation {
    condition     = alltrue(flatten([for one in var.file_systems : [for point in one.access_points : startswith(point.path, "/") && can(regex("^[0-7]{3,4}$", point.mode))]]))
    error_message = "An access point has an absolute path and an octal mode of three or four digits, such as 0755."
  }
}

variable "security_group_ids" {
  description = "Security groups of the mount targets. Needed where there are file systems."
  type        = list(string)
  default     = []
}

variable "client_roles" {
  description = "ARNs of the roles of machines that mount file systems. Needed where there are file systems."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "root_roles" {
  description = "ARNs of the roles whose root is root on all file systems."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "buckets" {
  description = <<-EOT
    S3 buckets by name. Who may read and write is said by the roles of module identity.
      bucket: global name.
      versions_days: how long overwritten and deleted versions are kept.
      archive_days: age at which objects move to archive_class; null for never.
      expire: by prefix of keys, empty for all: age in days at which objects are deleted.
  EOT
  type = map(object({
    bucket        = string
    versions_days = optional(number, 30)
    archive_days  = optional(number)
    archive_class = optional(string, "GLACIER_IR")
    expire        = optional(map(number), {})
    tags          = optional(map(string), {})
  }))
  default = {}

  validation {
    condition     = alltrue([for one in var.buckets : can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", one.bucket))])
    error_message = "A bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens."
  }

  validation {
    condition     = alltrue([for one in var.buckets : one.versions_days >= 1])
    error_message = "Versions are kept for a day or longer."
  }

  validation {
    condition     = alltrue([for one in var.buckets : contains(["STANDARD_IA", "INTELLIGENT_TIERING", "GLACIER_IR"], one.archive_class)])
    error_message = "The archive class is one that is read without a restore: STANDARD_IA, INTELLIGENT_TIERING or GLACIER_IR."
  }

  validation {
    condition     = alltrue([for one in var.buckets : one.archive_class != "STANDARD_IA" || coalesce(one.archive_days, 30) >= 30])
    error_message = "S3 moves objects to STANDARD_IA after 30 days or later."
  }

  validation {
    condition     = alltrue(flatten([for one in var.buckets : [for days in values(one.expire) : coalesce(one.archive_days, 0) < days]]))
    error_message = "Objects are archived before they expire: archive_days is less than each value of expire."
  }
}

variable "kms_key" {
  description = "ARN of the KMS key that encrypts file systems and buckets. Null for AWS's own."
  type        = string
  default     = null
}
