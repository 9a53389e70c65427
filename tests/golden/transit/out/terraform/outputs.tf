output "networks" {
  description = "By site: the VPC's id, block, subnets, zones, route tables, security groups and public NAT addresses."
  value = {
    "main"    = module.main.network
    "far"     = module.far.network
    "farther" = module.farther.network
  }
}

output "vpn_connections" {
  description = "By link: the VPN connection's id, and for each tunnel its outside address at AWS and its inside addresses."
  value = merge(
    module.main.vpn_connections,
    module.far.vpn_connections,
    module.farther.vpn_connections,
  )
}

output "node_pools" {
  description = "By site and pool: the Auto Scaling group's name and ARN, and its launch template."
  value = {
    "main"    = module.main.node_pools
    "far"     = module.far.node_pools
    "farther" = module.farther.node_pools
  }
}

output "instances" {
  description = "By host name: id, private and public address of masters, SSH nodes and VPN end points."
  value = merge(
    module.main.instances,
    module.far.instances,
    module.farther.instances,
  )
}

output "file_systems" {
  description = "By site and name: id, ARN, DNS name and access points of EFS file systems."
  value = {
    "main"    = module.main.file_systems
    "far"     = module.far.file_systems
    "farther" = module.farther.file_systems
  }
}

output "buckets" {
  description = "By name: ARN, global name and domain of S3 buckets."
  value = merge(
    module.main.buckets,
    module.far.buckets,
    module.farther.buckets,
  )
}

output "load_balancer" {
  description = "In front of the masters: DNS name, hosted zone and ARN."
  value       = module.main.load_balancer
}

output "instance_profiles" {
  description = "By role: the instance profile."
  value       = module.identity.instance_profiles
}

output "dns" {
  description = "Hosted zones, and the name servers to delegate the public one to."
  value = {
    zone_id             = module.dns.zone_id
    public_zone_id      = module.dns.public_zone_id
    public_name_servers = module.dns.public_name_servers
  }
}
