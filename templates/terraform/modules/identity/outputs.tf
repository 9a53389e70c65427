output "instance_profiles" {
  description = "Names of the instance profiles by role: node, control-plane, ssh-node, access-gateway."
  value       = { for role, profile in aws_iam_instance_profile.this : role => profile.name }
}

output "roles" {
  description = "ARNs of the roles, by name."
  value       = { for name, role in aws_iam_role.this : name => role.arn }
}
