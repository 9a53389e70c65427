variable "name" {
  description = "Name of the peering attachment."
  type        = string
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}
}

variable "requester" {
  description = "The side that asks: its transit gateway and the gateway's route table, the block that lies behind it (its VPC's, or of all that it leads on to), the physical sites' blocks behind it, and the VPC's route tables (ids by name) that get a route to the other side's block."
  type = object({
    transit_gateway_id  = string
    transit_route_table = string
    block               = string
    lans                = optional(set(string), [])
    route_tables        = map(string)
  })
}

variable "accepter" {
  description = "The side that accepts."
  type = object({
    transit_gateway_id  = string
    transit_route_table = string
    block               = string
    lans                = optional(set(string), [])
    route_tables        = map(string)
  })
}
