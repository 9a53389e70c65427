# For Packer 1.7 and later, which fetch this with `packer init`. Packer 1.6 has it built in, and does not read
# this file.

packer {
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = ">= 1.3.0, < 2.0.0"
    }
  }
}
