provider "aws" {
  alias  = "true"
  region = "us-west-2"
}

provider "aws" {
  alias  = "null"
  region = "eu-west-1"
}

