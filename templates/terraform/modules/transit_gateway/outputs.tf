output "id" {
  description = "The transit gateway, once the VPC is attached."
  value       = aws_ec2_transit_gateway_vpc_attachment.this.transit_gateway_id
}

output "route_table" {
  description = "Its default route table."
  value       = aws_ec2_transit_gateway.this.association_default_route_table_id
}
