provider "aws" {
  alias  = "us_west_2"
  region = "us-west-2"

  # The spec's checks know regions that are newer than the provider.
  skip_region_validation = true
}

