variable "name" {
  description = "Name of the transit gateway."
  type        = string
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}
}

variable "asn" {
  description = "Amazon's side of BGP, unique among transit gateways that peer."
  type        = number

  validation {
    condition     = (var.asn >= 64512 && var.asn <= 65534) || (var.asn >= 4200000000 && var.asn <= 4294967294)
    error_message = "Amazon's ASN is a private one: 64512 to 65534, or 4200000000 to 4294967294."
  }
}

variable "vpc_id" {
  description = "The VPC that is attached."
  type        = string
}

variable "subnets" {
  description = "Subnets of the attachment, one a zone: ids by name. Machines in other zones have no way to it."
  type        = map(string)

  validation {
    condition     = length(var.subnets) > 0
    error_message = "An attachment needs a subnet."
  }
}

variable "route_tables" {
  description = "The VPC's route tables that get routes to physical sites: ids by name."
  type        = map(string)
  default     = {}
}

variable "lans" {
  description = "Blocks of physical sites that it leads to."
  type        = set(string)
  default     = []
}
