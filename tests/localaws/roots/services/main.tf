# Instances, roles, a network load balancer.

data "aws_ami" "ubuntu" {
  for_each    = { amd64 = "x86_64", arm64 = "arm64" }
  most_recent = true
  owners      = ["099720109477"]
  filter {
    name   = "name"
    values = ["ubuntu/images/hvm-ssd*/ubuntu-noble-24.04-${each.key}-server-*"]
  }
  filter {
    name   = "architecture"
    values = [each.value]
  }
  filter {
    name   = "virtualization-type"
    values = ["hvm"]
  }
  filter {
    name   = "root-device-type"
    values = ["ebs"]
  }
}

data "aws_ec2_instance_type_offerings" "this" {
  location_type = "availability-zone"
  filter {
    name   = "instance-type"
    values = ["p4d.24xlarge", "m6i.large"]
  }
}

data "aws_availability_zones" "all" {
  state = "available"
  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

resource "aws_vpc" "this" {
  cidr_block = "10.50.0.0/16"
}

resource "aws_subnet" "this" {
  for_each          = { a = 0, b = 1 }
  vpc_id            = aws_vpc.this.id
  cidr_block        = cidrsubnet(aws_vpc.this.cidr_block, 8, each.value)
  availability_zone = data.aws_availability_zones.all.names[each.value]
}

resource "aws_security_group" "this" {
  name   = "masters"
  vpc_id = aws_vpc.this.id
}

resource "aws_iam_role" "this" {
  name                 = "masters"
  path                 = "/causeway/"
  description          = "Of masters"
  max_session_duration = 7200
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "ec2.amazonaws.com" } }]
  })
  tags = { Name = "masters" }
}

data "aws_iam_policy_document" "this" {
  statement {
    sid       = "Describe"
    actions   = ["ec2:Describe*", "autoscaling:Describe*"]
    resources = ["*"]
  }
}

resource "aws_iam_policy" "this" {
  name        = "masters"
  path        = "/causeway/"
  description = "Of masters"
  policy      = data.aws_iam_policy_document.this.json
  tags        = { Name = "masters" }
}

resource "aws_iam_role_policy_attachment" "this" {
  role       = aws_iam_role.this.name
  policy_arn = aws_iam_policy.this.arn
}

resource "aws_iam_role_policy_attachment" "ssm" {
  role       = aws_iam_role.this.name
  policy_arn = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
}

resource "aws_iam_role_policy" "this" {
  name   = "inline"
  role   = aws_iam_role.this.id
  policy = data.aws_iam_policy_document.this.json
}

resource "aws_iam_instance_profile" "this" {
  name = "masters"
  path = "/causeway/"
  role = aws_iam_role.this.name
  tags = { Name = "masters" }
}

resource "aws_key_pair" "this" {
  key_name   = "masters"
  public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGXpXkBcIHQ3s5jJ6wGmzxcCSyQ7PwuNJOEv2BzMkZmU someone"
}

resource "aws_instance" "this" {
  for_each                    = aws_subnet.this
  ami                         = data.aws_ami.ubuntu["amd64"].id
  instance_type               = "m6i.large"
  subnet_id                   = each.value.id
  private_ip                  = cidrhost(each.value.cidr_block, 10)
  vpc_security_group_ids      = [aws_security_group.this.id]
  iam_instance_profile        = aws_iam_instance_profile.this.name
  key_name                    = aws_key_pair.this.key_name
  user_data_base64            = base64encode("#cloud-config\n{}\n")
  user_data_replace_on_change = false
  disable_api_termination     = false
  ebs_optimized               = true
  monitoring                  = true
  source_dest_check           = false
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 2
    instance_metadata_tags      = "enabled"
  }
  root_block_device {
    volume_type           = "gp3"
    volume_size           = 50
    iops                  = 3000
    throughput            = 125
    encrypted             = true
    delete_on_termination = true
    tags                  = { Name = "root-${each.key}" }
  }
  ebs_block_device {
    device_name           = "/dev/sdf"
    volume_type           = "gp3"
    volume_size           = 100
    encrypted             = true
    delete_on_termination = true
    tags                  = { Name = "etcd-${each.key}" }
  }
  maintenance_options {
    auto_recovery = "default"
  }
  tags = { Name = "master-${each.key}" }
  lifecycle {
    ignore_changes = [ami, user_data_base64]
  }
}

resource "aws_eip" "this" {
  domain   = "vpc"
  instance = aws_instance.this["a"].id
  tags     = { Name = "bastion" }
}

resource "aws_lb" "this" {
  name                             = "masters"
  internal                         = true
  load_balancer_type               = "network"
  subnets                          = [for subnet in aws_subnet.this : subnet.id]
  security_groups                  = [aws_security_group.this.id]
  enable_cross_zone_load_balancing = true
  enable_deletion_protection       = false
  tags                             = { Name = "masters" }
}

resource "aws_lb_target_group" "this" {
  name                 = "masters"
  port                 = 6443
  protocol             = "TCP"
  target_type          = "instance"
  vpc_id               = aws_vpc.this.id
  deregistration_delay = 30
  preserve_client_ip   = "false"
  health_check {
    protocol            = "HTTPS"
    path                = "/readyz"
    port                = "traffic-port"
    matcher             = "200-399"
    interval            = 10
    timeout             = 6
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
  tags = { Name = "masters" }
}

resource "aws_lb_target_group" "addresses" {
  name        = "masters-by-ip"
  port        = 443
  protocol    = "TCP"
  target_type = "ip"
  vpc_id      = aws_vpc.this.id
  health_check {
    protocol = "TCP"
  }
}

resource "aws_lb_target_group_attachment" "this" {
  for_each         = aws_instance.this
  target_group_arn = aws_lb_target_group.this.arn
  target_id        = each.value.id
  port             = 6443
}

resource "aws_lb_target_group_attachment" "addresses" {
  target_group_arn = aws_lb_target_group.addresses.arn
  target_id        = "10.50.0.10"
  port             = 443
}

resource "aws_lb_listener" "this" {
  load_balancer_arn = aws_lb.this.arn
  port              = 6443
  protocol          = "TCP"
  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.this.arn
  }
  tags = { Name = "masters" }
}

resource "aws_lb_listener" "addresses" {
  load_balancer_arn = aws_lb.this.arn
  port              = 443
  protocol          = "TCP"
  default_action {
    type = "forward"
    forward {
      target_group {
        arn    = aws_lb_target_group.addresses.arn
        weight = 1
      }
    }
  }
}

resource "aws_route53_zone" "this" {
  name = "services.internal"
  vpc {
    vpc_id = aws_vpc.this.id
  }
}

resource "aws_route53_record" "balancer" {
  zone_id = aws_route53_zone.this.zone_id
  name    = "api"
  type    = "A"
  alias {
    name                   = aws_lb.this.dns_name
    zone_id                = aws_lb.this.zone_id
    evaluate_target_health = true
  }
}
