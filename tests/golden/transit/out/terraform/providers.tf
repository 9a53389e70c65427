provider "aws" {
  alias  = "main"
  region = "eu-central-1"
}

provider "aws" {
  alias  = "far"
  region = "us-east-2"
}

provider "aws" {
  alias  = "farther"
  region = "ap-southeast-2"
}

provider "aws" {
  alias  = "oregon"
  region = "us-west-2"
}

