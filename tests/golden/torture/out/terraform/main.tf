# The cluster on, environment torture.
# Rendered from its spec: change that, not this. Values are in terraform.tfvars.json.

# -- Rights of machines, the same in every region ----------------------------------------------------------

module "identity" {
  source    = "./modules/identity"
  providers = { aws = aws.true }

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

module "true" {
  source    = "./modules/region"
  providers = { aws = aws.true }

  name              = var.regions.true.name
  tags              = merge(var.tags, { site = "true" })
  network           = var.regions.true.network
  overlay           = var.regions.true.overlay
  vpn               = var.regions.true.vpn
  tunnel_keys       = var.tunnel_keys
  images            = var.regions.true.images
  instance_profiles = module.identity.instance_profiles
  roles             = module.identity.roles
  kms_key           = var.regions.true.kms_key
  node_pools        = var.regions.true.node_pools
  control_plane     = var.regions.true.control_plane
  instances         = var.regions.true.instances
  storage           = var.regions.true.storage
}

module "null" {
  source    = "./modules/region"
  providers = { aws = aws.null }

  name              = var.regions.null.name
  tags              = merge(var.tags, { site = "null" })
  network           = var.regions.null.network
  overlay           = var.regions.null.overlay
  vpn               = var.regions.null.vpn
  tunnel_keys       = var.tunnel_keys
  images            = var.regions.null.images
  instance_profiles = module.identity.instance_profiles
  roles             = module.identity.roles
  kms_key           = var.regions.null.kms_key
  node_pools        = var.regions.null.node_pools
  control_plane     = var.regions.null.control_plane
  instances         = var.regions.null.instances
  storage           = var.regions.null.storage
}

# -- Peerings: every region reaches every other ------------------------------------------------------------

module "peering_null_true" {
  source = "./modules/peering"
  providers = {
    aws.requester = aws.null
    aws.accepter  = aws.true
  }

  name      = "torture-null-true"
  tags      = var.tags
  requester = module.null.network
  accepter  = module.true.network
}

# -- Names -------------------------------------------------------------------------------------------------

module "dns" {
  source    = "./modules/dns"
  providers = { aws = aws.true }

  tags = var.tags
  zone = var.dns.zone
  ttl  = var.dns.ttl

  primary_vpc = { id = module.true.network.vpc_id, region = "us-west-2" }
  vpcs = {
    null = { id = module.null.network.vpc_id, region = "eu-west-1" }
  }

  records = merge(
    var.dns.records,
    module.true.records,
    module.null.records,
  )
  aliases = {
    api = {
      name           = var.dns.api
      target         = module.true.load_balancer.dns_name
      target_zone_id = module.true.load_balancer.zone_id
    }
  }

  public = var.dns.public
  public_records = merge(
    var.dns.public_records,
    module.true.public_records,
    module.null.public_records,
  )
}
