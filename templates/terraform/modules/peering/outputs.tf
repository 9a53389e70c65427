output "id" {
  description = "The peering connection, once it is active."
  value       = aws_vpc_peering_connection_accepter.this.id
}
