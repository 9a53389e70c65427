locals {
  # Optional parts, as maps of none or one for for_each.
  vpn           = { for vpn in var.vpn[*] : "this" => vpn }
  vpn_gateways  = { for vpn in var.vpn[*] : "this" => vpn.asn if vpn.asn != null }
  control_plane = { for plane in var.control_plane[*] : "this" => plane }

  flow_logs = one([
    for logs in var.network.flow_logs[*] : merge(logs, { role_name = "${var.name}-flow-logs" })
  ])

  private_subnet_ids = {
    for name, subnet in var.network.subnets : subnet.zone => module.network.subnets[name] if subnet.tier == "private"
  }

  named_instances = merge(var.instances, [for plane in var.control_plane[*] : plane.masters]...)
}

# -- Images: what the bake made, else the newest published one ---------------------------------------------

data "aws_ami" "source" {
  for_each = { for name, image in var.images : name => image if image.id == null }

  owners      = [each.value.owner]
  most_recent = true

  filter {
    name   = "name"
    values = [each.value.name]
  }

  filter {
    name   = "architecture"
    values = [each.value.architecture]
  }

  filter {
    name   = "virtualization-type"
    values = ["hvm"]
  }
}

locals {
  image_ids = {
    for name, image in var.images : name => image.id == null ? data.aws_ami.source[name].id : image.id
  }
}

# -- User data: the facts a machine starts with; what to do with them is in its image ----------------------

locals {
  instance_user_data = {
    for name, instance in local.named_instances : name => join("\n", ["#cloud-config", yamlencode({
      hostname         = instance.hostname
      fqdn             = instance.fqdn
      manage_etc_hosts = true
      write_files = [{
        path        = "/etc/causeway/node.json"
        permissions = "0644"
        content     = jsonencode(instance.user_data)
      }]
    })])
  }
}
