variable "tags" {
  description = "Tags on the zones."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "zone" {
  description = "The private zone, without the last dot."
  type        = string

  validation {
    condition     = can(regex("^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", var.zone))
    error_message = "A zone is a domain name in lower case, without the last dot."
  }
}

variable "ttl" {
  description = "For how many seconds resolvers keep a record that does not say it."
  type        = number
  default     = 60
  nullable    = false

  validation {
    condition     = var.ttl >= 0 && var.ttl <= 2147483647
    error_message = "A TTL is 0 to 2147483647 seconds."
  }
}

variable "primary_vpc" {
  description = "The VPC that the private zone is made with."
  type = object({
    id     = string
    region = string
  })
}

variable "vpcs" {
  description = "The other VPCs that see the private zone, by name."
  type = map(object({
    id     = string
    region = string
  }))
  default  = {}
  nullable = false
}

variable "records" {
  description = "Records of the private zone by a key of any kind; names are full, without the last dot. TXT values are plain text: quoting, and cutting at 255 characters, are done here."
  type = map(object({
    name   = string
    type   = string
    values = list(string)
    ttl    = optional(number)
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for record in var.records : contains(["A", "AAAA", "CNAME", "PTR", "SRV", "TXT"], record.type)])
    error_message = "A record is of type A, AAAA, CNAME, PTR, SRV or TXT."
  }

  validation {
    condition     = alltrue([for record in var.records : record.type != "CNAME" || length(record.values) == 1])
    error_message = "A CNAME record has one value."
  }
}

variable "aliases" {
  description = "Names in the private zone that follow a load balancer, by a key of any kind: its DNS name and the id of its own zone."
  type = map(object({
    name           = string
    target         = string
    target_zone_id = string
  }))
  default  = {}
  nullable = false
}

variable "public" {
  description = "A zone that the world can see: made, or an existing one by its id. Null for none."
  type = object({
    zone = string
    id   = optional(string)
  })
  default = null

  validation {
    condition     = alltrue([for public in var.public[*] : can(regex("^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", public.zone))])
    error_message = "A zone is a domain name in lower case, without the last dot."
  }
}

variable "public_records" {
  description = "Records of the public zone, as in records."
  type = map(object({
    name   = string
    type   = string
    values = list(string)
    ttl    = optional(number)
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for record in var.public_records : contains(["A", "AAAA", "CAA", "CNAME", "SRV", "TXT"], record.type)])
    error_message = "A public record is of type A, AAAA, CAA, CNAME, SRV or TXT."
  }

  validation {
    condition     = alltrue([for record in var.public_records : record.type != "CNAME" || length(record.values) == 1])
    error_message = "A CNAME record has one value."
  }
}
