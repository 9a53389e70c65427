output "vpc_id" {
  description = "The VPC."
  value       = aws_vpc.this.id
}

output "block" {
  description = "Address block of the VPC."
  value       = aws_vpc.this.cidr_block
}

output "subnets" {
  description = "Subnet ids by name."
  value       = { for name, subnet in aws_subnet.this : name => subnet.id }
}

output "routed_subnets" {
  description = "Subnet ids by name, once their ways out are there: for machines, which fetch things when they start."
  value       = { for name, subnet in aws_subnet.this : name => subnet.id }

  # An elastic address, too, can be given to a machine only while the VPC has its internet gateway.
  depends_on = [
    aws_route.internet,
    aws_route.nat,
    aws_route_table_association.this,
    aws_vpc_endpoint.gateway,
    aws_vpc_endpoint.interface,
  ]
}

output "zones" {
  description = "Names of the zones, by what they are called here: by name, or by id."
  value       = { for name, subnet in var.subnets : subnet.zone => aws_subnet.this[name].availability_zone if subnet.tier == "private" }
}

output "route_tables" {
  description = "Route table ids by name: public, and private-<zone>."
  value       = { for name, table in aws_route_table.this : name => table.id }
}

output "security_groups" {
  description = "Security group ids by role: node, control-plane, load-balancer, vpn, ssh, efs; once their rules are there."
  value       = { for name, group in aws_security_group.this : name => group.id }

  depends_on = [
    aws_vpc_security_group_egress_rule.anywhere,
    aws_vpc_security_group_egress_rule.group,
    aws_vpc_security_group_ingress_rule.group,
    aws_vpc_security_group_ingress_rule.inside,
    aws_vpc_security_group_ingress_rule.world,
  ]
}

output "nat_addresses" {
  description = "Public addresses of the NAT gateways, by zone."
  value       = { for zone, address in aws_eip.nat : zone => address.public_ip }
}
