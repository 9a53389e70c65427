output "name" {
  description = "Name of the Auto Scaling group."
  value       = aws_autoscaling_group.this.name
}

output "arn" {
  description = "ARN of the Auto Scaling group."
  value       = aws_autoscaling_group.this.arn
}

output "launch_template_id" {
  description = "The launch template; null where machines are made from a launch configuration."
  value       = one([for template in aws_launch_template.this : template.id])
}
