output "zone_id" {
  description = "The private zone."
  value       = aws_route53_zone.private.zone_id
}

output "public_zone_id" {
  description = "The public zone; null where there is none."
  value       = try(local.public_zone.id, null)
}

output "public_name_servers" {
  description = "Name servers that the parent zone delegates the public zone to; none where there is no such zone."
  value       = try(local.public_zone.name_servers, [])
}
