output "id" {
  description = "The peering attachment, once it is accepted."
  value       = aws_ec2_transit_gateway_peering_attachment_accepter.this.id
}
