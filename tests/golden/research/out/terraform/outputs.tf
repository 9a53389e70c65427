output "networks" {
  description = "By site: the VPC's id, block, subnets, zones, route tables, security groups and public NAT addresses."
  value = {
    "us-west-2" = module.us_west_2.network
    "us-east-1" = module.us_east_1.network
    "eu-west-1" = module.eu_west_1.network
  }
}

output "vpn_connections" {
  description = "By link: the VPN connection's id, and for each tunnel its outside address at AWS and its inside addresses."
  value = merge(
    module.us_west_2.vpn_connections,
    module.us_east_1.vpn_connections,
    module.eu_west_1.vpn_connections,
  )
}

output "node_pools" {
  description = "By site and pool: the Auto Scaling group's name and ARN, and its launch template."
  value = {
    "us-west-2" = module.us_west_2.node_pools
    "us-east-1" = module.us_east_1.node_pools
    "eu-west-1" = module.eu_west_1.node_pools
  }
}

output "instances" {
  description = "By host name: id, private and public address of masters, SSH nodes and VPN end points."
  value = merge(
    module.us_west_2.instances,
    module.us_east_1.instances,
    module.eu_west_1.instances,
  )
}

output "file_systems" {
  description = "By site and name: id, ARN, DNS name and access points of EFS file systems."
  value = {
    "us-west-2" = module.us_west_2.file_systems
    "us-east-1" = module.us_east_1.file_systems
    "eu-west-1" = module.eu_west_1.file_systems
  }
}

output "buckets" {
  description = "By name: ARN, global name and domain of S3 buckets."
  value = merge(
    module.us_west_2.buckets,
    module.us_east_1.buckets,
    module.eu_west_1.buckets,
  )
}

output "load_balancer" {
  description = "In front of the masters: DNS name, hosted zone and ARN."
  value       = module.us_west_2.load_balancer
}

output "instance_profiles" {
  description = "By role: the instance profile."
  value       = module.identity.instance_profiles
}

output "web_identity" {
  description = "The issuer of the cluster's tokens, and by namespace the role that its pods may take."
  value       = { issuer = module.web_identity.issuer, roles = module.web_identity.roles }
}

output "tracking_database" {
  description = "MLflow's database: its host name."
  value       = { address = module.tracking_database.address }
}

output "dns" {
  description = "Hosted zones, and the name servers to delegate the public one to."
  value = {
    zone_id             = module.dns.zone_id
    public_zone_id      = module.dns.public_zone_id
    public_name_servers = module.dns.public_name_servers
  }
}
