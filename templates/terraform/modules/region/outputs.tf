output "network" {
  description = "The VPC's id, block, subnets and route tables (ids by name), zones (names by what the spec calls them), security groups (ids by role) and the public addresses of its NAT gateways (by zone)."
  value = {
    vpc_id          = module.network.vpc_id
    block           = module.network.block
    subnets         = module.network.subnets
    zones           = module.network.zones
    route_tables    = module.network.route_tables
    security_groups = module.network.security_groups
    nat_addresses   = module.network.nat_addresses
  }
}

output "vpn_connections" {
  description = "VPN connections by name: id, and for each tunnel its outside address at AWS and its inside addresses."
  value       = merge([for vpn in module.vpn_connections : vpn.connections]...)
}

output "node_pools" {
  description = "Auto Scaling groups by pool: name, ARN and launch template."
  value = {
    for name, pool in module.node_pool : name => {
      name               = pool.name
      arn                = pool.arn
      launch_template_id = pool.launch_template_id
    }
  }
}

output "load_balancer" {
  description = "The load balancer in front of the masters: DNS name, hosted zone and ARN; null where there is none."
  value       = one([for plane in module.control_plane : plane.load_balancer])
}

output "instances" {
  description = "Masters, SSH nodes and VPN end points by host name: id, private and public address."
  value       = local.instances
}

output "file_systems" {
  description = "EFS file systems by name: id, ARN, DNS name and access points (ids by name)."
  value       = module.storage.file_systems
}

output "buckets" {
  description = "S3 buckets by name: ARN, global name and domain."
  value       = module.storage.buckets
}

# -- Names for DNS ----------------------------------------------------------------------------------------

locals {
  masters = merge([for plane in module.control_plane : plane.masters]...)
  instances = merge(
    { for name, master in local.masters : name => { id = master.id, private_ip = master.private_ip, public_ip = null } },
    module.access.instances,
  )
}

output "records" {
  description = "Records of the private zone, by key: the full name of each machine and its private address."
  value = {
    for name, instance in local.named_instances : name => {
      name   = instance.fqdn
      type   = "A"
      values = [local.instances[name].private_ip]
    } if contains(keys(local.instances), name) # A refresh finds those alone that were applied.
  }
}

output "public_records" {
  description = "Records of the public zone, by key: each machine with a public name, and its elastic address."
  value = {
    for name, instance in var.instances : name => {
      name   = instance.public_name
      type   = "A"
      values = [local.instances[name].public_ip]
    } if instance.public_name != null && contains(keys(local.instances), name)
  }
}
