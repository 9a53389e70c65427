# Machines that people come in through: SSH nodes, and the end points of laptops' VPN.

locals {
  public   = { for name, one in var.instances : name => one if one.public }
  ssh_from = { for name, one in var.instances : name => one if length(one.ssh_from) > 0 }

  ssh_rules = merge([
    for name, one in local.ssh_from : {
      for block in one.ssh_from : "${name} ${block}" => { instance = name, block = block }
    }
  ]...)

  security_groups_of = {
    ssh-node       = [var.security_groups.ssh]
    access-gateway = [var.security_groups.ssh, var.security_groups.vpn]
  }
}

resource "aws_security_group" "ssh_from" {
  for_each = local.ssh_from

  name        = "${each.value.name}-ssh-from"
  description = "SSH to this one machine from outside the cluster"
  vpc_id      = var.vpc_id

  tags = merge(var.tags, each.value.tags, { Name = "${each.value.name}-ssh-from" })

  # The machine leaves it before it goes.
  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "ssh_from" {
  for_each = local.ssh_rules

  security_group_id = aws_security_group.ssh_from[each.value.instance].id
  description       = "SSH"
  cidr_ipv4         = each.value.block
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22

  tags = merge(var.tags, { Name = "${var.name}-ssh-from" })
}

resource "aws_instance" "this" {
  #checkov:skip=CKV_AWS_135:Types of the last ten years are EBS-optimized by themselves, and some older ones refuse the setting.
  for_each = var.instances

  ami                  = each.value.image_id
  instance_type        = each.value.instance_type
  subnet_id            = each.value.subnet_id
  iam_instance_profile = var.instance_profiles[each.value.role]
  user_data            = each.value.user_data
  monitoring           = true

  disable_api_termination = false

  vpc_security_group_ids = concat(
    local.security_groups_of[each.value.role],
    [for name, group in aws_security_group.ssh_from : group.id if name == each.key],
  )

  # A gateway forwards what laptops and the cluster send each other, under their own addresses.
  source_dest_check = each.value.role != "access-gateway"

  # associate_public_ip_address is not set: an elastic address reads back as true, and false would replace the
  # machine at each apply. Subnets give no public addresses by themselves.

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    volume_type           = each.value.root_disk.type
    volume_size           = each.value.root_disk.size_gib
    iops                  = each.value.root_disk.iops
    throughput            = each.value.root_disk.throughput
    encrypted             = true
    kms_key_id            = var.kms_key
    delete_on_termination = true
  }

  tags = merge(var.tags, each.value.tags, { Name = each.value.name })

  # In RunInstances itself, as IAM policies ask for it; the disk's own tags would follow in a second call.
  volume_tags = merge(var.tags, each.value.tags, { Name = each.value.name })

  # People work on these, or through them: a new image or new user data waits until the machine is rolled.
  #
  # Terraform reads the tags of all disks as one map, and would write volume_tags over those of a disk that was
  # attached later: a disk keeps the tags that it was made with.
  lifecycle {
    ignore_changes = [ami, user_data, volume_tags, root_block_device[0].tags]
  }
}

# Names in public DNS, laptops' settings and other people's firewalls hold these addresses.
resource "aws_eip" "this" {
  for_each = local.public

  domain = "vpc"

  tags = merge(var.tags, each.value.tags, { Name = each.value.name })

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_eip_association" "this" {
  for_each = local.public

  allocation_id = aws_eip.this[each.key].id
  instance_id   = aws_instance.this[each.key].id
}
