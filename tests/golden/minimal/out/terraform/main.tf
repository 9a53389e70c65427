# The cluster minimal, environment minimal.
# Rendered from its spec: change that, not this. Values are in terraform.tfvars.json.

# -- Rights of machines, the same in every region ----------------------------------------------------------

module "identity" {
  source    = "./modules/identity"
  providers = { aws = aws.us_west_2 }

  name           = var.environment
  tags           = var.tags
  cluster        = var.identity.cluster
  secrets_prefix = var.identity.secrets_prefix
  regions        = var.identity.regions
  buckets        = var.identity.buckets
  snapshots      = var.identity.snapshots
  audit_log      = var.identity.audit_log
  volumes_region = var.identity.volumes_region
  kms_keys       = var.identity.kms_keys
}

# -- Regions, in the order in which work overflows ---------------------------------------------------------

module "us_west_2" {
  source    = "./modules/region"
  providers = { aws = aws.us_west_2 }

  name              = var.regions.us_west_2.name
  tags              = merge(var.tags, { site = "us-west-2" })
  network           = var.regions.us_west_2.network
  overlay           = var.regions.us_west_2.overlay
  vpn               = var.regions.us_west_2.vpn
  tunnel_keys       = var.tunnel_keys
  images            = var.regions.us_west_2.images
  instance_profiles = module.identity.instance_profiles
  roles             = module.identity.roles
  kms_key           = var.regions.us_west_2.kms_key
  node_pools        = var.regions.us_west_2.node_pools
  control_plane     = var.regions.us_west_2.control_plane
  instances         = var.regions.us_west_2.instances
  storage           = var.regions.us_west_2.storage
}

# -- Names -------------------------------------------------------------------------------------------------

module "dns" {
  source    = "./modules/dns"
  providers = { aws = aws.us_west_2 }

  tags = var.tags
  zone = var.dns.zone
  ttl  = var.dns.ttl

  primary_vpc = { id = module.us_west_2.network.vpc_id, region = "us-west-2" }
  vpcs = {
  }

  records = merge(
    var.dns.records,
    module.us_west_2.records,
  )
  aliases = {
    api = {
      name           = var.dns.api
      target         = module.us_west_2.load_balancer.dns_name
      target_zone_id = module.us_west_2.load_balancer.zone_id
    }
  }

  public = var.dns.public
  public_records = merge(
    var.dns.public_records,
    module.us_west_2.public_records,
  )
}
