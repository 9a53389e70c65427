resource "aws_vpc" "this" {
  cidr_block           = var.block
  enable_dns_support   = true
  enable_dns_hostnames = true

  tags = merge(var.tags, { Name = var.name })

  lifecycle {
    prevent_destroy = true
  }
}

# AWS makes a group that lets its members talk to each other; with no rules nothing can hide in it.
resource "aws_default_security_group" "this" {
  vpc_id = aws_vpc.this.id

  # Said, not left out: Terraform then closes what somebody opens.
  ingress = []
  egress  = []

  tags = merge(var.tags, { Name = "${var.name}-default-closed" })
}

# Every subnet is behind it. It lets everything pass, as AWS makes it: security groups decide.
resource "aws_default_network_acl" "this" {
  #checkov:skip=CKV_AWS_229:Security groups decide who reaches what.
  #checkov:skip=CKV_AWS_230:Security groups decide who reaches what.
  #checkov:skip=CKV_AWS_231:Security groups decide who reaches what.
  #checkov:skip=CKV_AWS_232:Security groups decide who reaches what.
  default_network_acl_id = aws_vpc.this.default_network_acl_id

  ingress {
    rule_no    = 100
    action     = "allow"
    protocol   = "-1"
    cidr_block = "0.0.0.0/0"
    from_port  = 0
    to_port    = 0
  }

  egress {
    rule_no    = 100
    action     = "allow"
    protocol   = "-1"
    cidr_block = "0.0.0.0/0"
    from_port  = 0
    to_port    = 0
  }

  tags = merge(var.tags, { Name = "${var.name}-default" })

  # A subnet is put behind it by AWS, when it is made.
  lifecycle {
    ignore_changes = [subnet_ids]
  }
}

resource "aws_internet_gateway" "this" {
  vpc_id = aws_vpc.this.id

  tags = merge(var.tags, { Name = var.name })
}
