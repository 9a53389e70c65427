terraform {
  required_version = ">= 1.10"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }

  # A native lock file in the bucket keeps two applies apart.
  backend "s3" {
    bucket       = "research-terraform-state-lab-example"
    key          = "research/terraform.tfstate"
    region       = "us-west-2"
    encrypt      = true
    use_lockfile = true
  }
}
