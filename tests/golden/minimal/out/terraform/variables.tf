variable "environment" {
  description = "First part of every name."
  type        = string
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
}

variable "identity" {
  description = "Rights of machines: the tag they are limited to, where their secrets are, the buckets they use, where masters copy etcd to, where they make volumes, and the KMS keys of the regions."
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
    volumes_region = optional(string)
    kms_keys       = set(string)
  })
}

# Typed where it is used: modules/region/variables.tf.
variable "regions" {
  description = "By region: everything that stands in it."
  type        = any
}

variable "web_identity" {
  description = "The issuer of the cluster's tokens, a role for each namespace, and where these have folders: the store of researchers' code, and buckets with volumes. Null for none."
  type = object({
    issuer = object({
      bucket = string
      url    = string
      tags   = map(string)
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
    roles = map(string)
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

variable "tunnel_keys" {
  description = "Pre-shared keys of the VPN tunnels, by name: from the secrets store, at run time, never in a file."
  type        = map(string)
  default     = {}
  sensitive   = true
}
