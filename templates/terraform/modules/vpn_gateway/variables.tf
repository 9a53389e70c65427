variable "name" {
  description = "Name of the virtual private gateway."
  type        = string
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "vpc_id" {
  description = "The VPC that it is attached to."
  type        = string
}

variable "asn" {
  description = "Amazon's side of the BGP sessions."
  type        = number

  validation {
    condition     = (var.asn >= 64512 && var.asn <= 65534) || (var.asn >= 4200000000 && var.asn <= 4294967294)
    error_message = "Amazon's ASN is a private one: 64512 to 65534, or 4200000000 to 4294967294."
  }
}

variable "route_tables" {
  description = "Route tables that learn the routes behind the VPN: ids by name."
  type        = map(string)
}
