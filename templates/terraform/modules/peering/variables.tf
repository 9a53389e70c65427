variable "name" {
  description = "Name of the peering connection."
  type        = string
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}
}

variable "requester" {
  description = "The side that asks: its VPC, block, and route tables (ids by name) that get a route to the other side."
  type = object({
    vpc_id       = string
    block        = string
    route_tables = map(string)
  })
}

variable "accepter" {
  description = "The side that accepts."
  type = object({
    vpc_id       = string
    block        = string
    route_tables = map(string)
  })
}

variable "dns_resolution" {
  description = "Whether public DNS names of the other side's machines resolve to private addresses."
  type        = bool
  default     = true
}
