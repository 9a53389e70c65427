output "address" {
  description = "The database's host name."
  value       = aws_db_instance.this.address
}
