output "masters" {
  description = "By name: each master's instance id and private address."
  value = {
    for name, master in aws_instance.master : name => {
      id         = master.id
      private_ip = master.private_ip
    }
  }
}

output "load_balancer" {
  description = "The load balancer: its DNS name and hosted zone, for an alias record, and its ARN."
  value = {
    dns_name = aws_lb.this.dns_name
    zone_id  = aws_lb.this.zone_id
    arn      = aws_lb.this.arn
  }
}
