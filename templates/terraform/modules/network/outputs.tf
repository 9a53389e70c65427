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

output "route_tables" {
  description = "Route table ids by name: public, and private-<zone>."
  value       = { for name, table in aws_route_table.this : name => table.id }
}

output "security_groups" {
  description = "Security group ids by role: node, control-plane, load-balancer, vpn, ssh, efs."
  value       = { for name, group in aws_security_group.this : name => group.id }
}

output "nat_addresses" {
  description = "Public addresses of the NAT gateways, by zone."
  value       = { for zone, address in aws_eip.nat : zone => address.public_ip }
}
