output "id" {
  description = "The virtual private gateway, once the VPC is attached."
  value       = aws_vpn_gateway_attachment.this.vpn_gateway_id
}
