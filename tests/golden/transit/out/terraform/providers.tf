provider "aws" {
  alias  = "main"
  region = "eu-central-1"

  # The spec's checks know regions that are newer than the provider.
  skip_region_validation = true
}

provider "aws" {
  alias  = "far"
  region = "us-east-2"

  # The spec's checks know regions that are newer than the provider.
  skip_region_validation = true
}

provider "aws" {
  alias  = "farther"
  region = "ap-southeast-2"

  # The spec's checks know regions that are newer than the provider.
  skip_region_validation = true
}

provider "aws" {
  alias  = "oregon"
  region = "us-west-2"

  # The spec's checks know regions that are newer than the provider.
  skip_region_validation = true
}

