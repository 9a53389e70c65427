variable "name" {
  description = "First part of the roles' names: the environment."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9+=,.@_-]{0,48}$", var.name))
    error_message = "A name has 1 to 49 letters, digits and +=,.@_-, so that <name>-access-gateway fits into 64."
  }
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "cluster" {
  description = "Value of the tag \"cluster\": Auto Scaling groups and file systems with another one are out of reach."
  type        = string
}

variable "secrets_prefix" {
  description = "Where the cluster's secrets are in SSM Parameter Store, such as /causeway/research; each role reads <secrets_prefix>/<role>/."
  type        = string

  validation {
    condition     = can(regex("^(/[A-Za-z0-9_.-]+)+$", var.secrets_prefix))
    error_message = "A prefix begins with a slash and does not end with one."
  }
}

variable "regions" {
  description = "AWS regions that the cluster is in."
  type        = set(string)

  validation {
    condition     = length(var.regions) > 0
    error_message = "A cluster is in one region or more."
  }
}

variable "buckets" {
  description = "S3 buckets that nodes use, by name. Nodes neither write to nor delete from a read_only one."
  type = map(object({
    bucket    = string
    read_only = optional(bool, false)
  }))
  default  = {}
  nullable = false
}

variable "snapshots" {
  description = "The bucket and prefix where masters keep snapshots of etcd. Null for none."
  type = object({
    bucket = string
    prefix = optional(string, "snapshots/")
  })
  default = null

  validation {
    condition     = alltrue([for one in var.snapshots[*] : can(regex("^[^*?]+/$", one.prefix))])
    error_message = "A prefix ends with a slash and holds no wildcard."
  }
}

variable "audit_log" {
  description = "The bucket and prefix that masters write the API server's audit log to. Null for none."
  type = object({
    bucket = string
    prefix = optional(string, "audit/")
  })
  default = null

  validation {
    condition     = alltrue([for one in var.audit_log[*] : can(regex("^[^*?]+/$", one.prefix))])
    error_message = "A prefix ends with a slash and holds no wildcard."
  }
}

variable "image_repositories" {
  description = "ECR repositories that nodes pull images from, as patterns of their names (research/*). None for none."
  type        = set(string)
  default     = []
  nullable    = false
}

variable "volumes_region" {
  description = "The region in whose file systems masters make volumes (EFS CSI driver). Null for none."
  type        = string
  default     = null
}

variable "kms_keys" {
  description = "ARNs of the KMS keys that buckets are encrypted with. None for S3's own."
  type        = set(string)
  default     = []
  nullable    = false
}
