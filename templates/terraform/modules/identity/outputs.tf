output "instance_profiles" {
  description = "Names of the instance profiles by role: node, control-plane, ssh-node, access-gateway; once they have their rights."
  value       = { for role, profile in aws_iam_instance_profile.this : role => profile.name }

  depends_on = [
    aws_iam_role_policy.audit_log,
    aws_iam_role_policy.autoscaler,
    aws_iam_role_policy.buckets,
    aws_iam_role_policy.file_systems,
    aws_iam_role_policy.images,
    aws_iam_role_policy.keys,
    aws_iam_role_policy.node,
    aws_iam_role_policy.secrets,
    aws_iam_role_policy.snapshots,
    aws_iam_role_policy.tokens,
    aws_iam_role_policy.volumes,
  ]
}

output "roles" {
  description = "ARNs of the roles, by name."
  value       = { for name, role in aws_iam_role.this : name => role.arn }
}
