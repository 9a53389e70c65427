output "network_interfaces" {
  description = "By name: the id of each machine's network card, for routes that lead to it."
  value       = { for name, one in aws_instance.this : name => one.primary_network_interface_id }
}

output "instances" {
  description = "By name: each machine's instance id, private address, and public address (null for none)."
  value = {
    for name, one in aws_instance.this : name => {
      id         = one.id
      private_ip = one.private_ip
      public_ip  = try(aws_eip.this[name].public_ip, null)
    }
  }
}
