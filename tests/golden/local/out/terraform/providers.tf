provider "aws" {
  alias  = "us_west_2"
  region = "us-west-2"

  # The spec's checks know regions that are newer than the provider.
  skip_region_validation = true
}

provider "aws" {
  alias  = "us_east_1"
  region = "us-east-1"

  # The spec's checks know regions that are newer than the provider.
  skip_region_validation = true
}

provider "aws" {
  alias  = "eu_west_1"
  region = "eu-west-1"

  # The spec's checks know regions that are newer than the provider.
  skip_region_validation = true
}

