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
  description = "The side that asks: its transit gateway and the gateway's route table, the block that lies behind it (its VPC's, or of all that it leads on to), and the VPC's route tables (ids by name) that get a route to the other side."
  type = object({
    transit_gateway_id  = string
    transit_route_table = string
    block               = string
    route_tables        = map(string)
  })
}

variable "accepter" {
  description = "The side that accepts."
  type = object({
    transit_gateway_id  = string
    transit_route_table = string
    block               = string
    route_tables        = map(string)
  })
}
