variable "environment" {
  description = "First part of every name."
  type        = string
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
}

variable "identity" {
  description = "Rights of machines: the tag they are limited to, where their secrets are, the buckets they use, where masters copy etcd and the audit log to, where they make volumes, and the KMS keys of the regions."
  type = object({
    cluster        = string
    secrets_prefix = string
    regions        = set(string)
    buckets = map(object({
      bucket    = string
      read_only = bool
    }))
    snapshots = optional(object({
      bucket = string
      prefix = string
    }))
    audit_log = optional(object({
      bucket = string
      prefix = string
    }))
    volumes_region = optional(string)
    kms_keys       = set(string)
  })
}

# Typed where it is used: modules/region/variables.tf.
variable "regions" {
  description = "By region: everything in it."
  type        = any
}

variable "web_identity" {
  description = "The issuers of the cluster's tokens, a role for each namespace, and where these have folders: the store of researchers' code, and buckets with volumes; the role of MLflow, which has a folder of the store. Null for none."
  type = object({
    issuer = object({
      bucket            = string
      url               = optional(string)
      cloudfront_folder = optional(string)
      tags              = map(string)
    })
    store = optional(object({
      bucket  = string
      kms_key = optional(string)
    }))
    volumes = map(object({
      bucket    = string
      read_only = bool
      kms_key   = optional(string)
    }))
    roles    = map(string)
    tracking = optional(string)
  })
  default = null
}

variable "tracking_database" {
  description = "MLflow's database at RDS, in the primary region. Null for none."
  type = object({
    name              = string
    subnets           = list(string)
    instance_class    = string
    storage_gib       = number
    storage_limit_gib = number
    multi_az          = bool
    backup_days       = number
    kms_key           = optional(string)
    tags              = map(string)
  })
  default = null
}

variable "dns" {
  description = "Zones and the records whose values are known before apply."
  type = object({
    zone = string
    ttl  = number
    api  = string
    records = map(object({
      name   = string
      type   = string
      values = list(string)
      ttl    = optional(number)
    }))
    public = optional(object({
      zone = string
      id   = optional(string)
    }))
    public_records = map(object({
      name   = string
      type   = string
      values = list(string)
      ttl    = optional(number)
    }))
  })
}

variable "tracking_password" {
  description = "The password of MLflow's database: from the secrets store, at run time, never in a file."
  type        = string
  default     = null
  sensitive   = true
}

variable "tunnel_keys" {
  description = "Pre-shared keys of the VPN tunnels, by name: from the secrets store, at run time, never in a file."
  type        = map(string)
  default     = {}
  sensitive   = true
}
