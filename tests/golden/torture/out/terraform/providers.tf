provider "aws" {
  alias  = "true"
  region = "us-west-2"

  # The spec's checks know regions that are newer than the provider.
  skip_region_validation = true
}

provider "aws" {
  alias  = "null"
  region = "eu-west-1"

  # The spec's checks know regions that are newer than the provider.
  skip_region_validation = true
}

