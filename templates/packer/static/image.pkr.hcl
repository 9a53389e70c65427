# A machine image, baked in one region and copied to the others. The same file for every image: what differs
# is in image.pkrvars.json, and `invoke bake` passes the values of a single run.
#
# Written for Packer 1.6.6, which takes this file alone, and for every later one, which takes the folder. What
# Packer 1.6 cannot say is done by `invoke bake` through the EC2 API: IMDSv2 of the build instance and of the
# images, and a key pair and a security group that carry tags from their first moment.

# -- What the image is ------------------------------------------------------------------------------------

variable "image" {
  type        = string
  description = "The image's name in the spec: gpu."
}

variable "region" {
  type        = string
  description = "The AWS region where it is baked."
}

variable "regions" {
  type        = list(string)
  description = "Every AWS region that gets it; the first one's own is left out by Packer."
}

variable "source_owner" {
  type        = string
  description = "The account that publishes the image to start from."
}

variable "source_name" {
  type        = string
  description = "A name pattern; the newest image that matches is taken."
}

variable "architecture" {
  type        = string
  description = "x86_64 or arm64."
}

variable "instance_types" {
  type        = list(string)
  description = "Types of the build instance. On demand the first one; as spot any of them."
}

variable "root_disk_gib" {
  type        = number
  description = "Size of the root volume, in GiB."
}

variable "tags" {
  type        = map(string)
  description = "On everything that is made."
}

variable "ssh_username" {
  type        = string
  description = "The user that the source image lets in."
}

variable "client_name" {
  type        = string
  description = "The client that runs the roles: cinc or chef."
}

variable "client_version" {
  type        = string
  description = "Its version."
}

variable "client_sha256" {
  type        = string
  description = "What that package's SHA-256 must be."
}

# -- What belongs to one run -------------------------------------------------------------------------------

variable "name" {
  type        = string
  description = "The AMI's name, the same in every region."
  default     = "causeway"
}

variable "source_image" {
  type        = string
  description = "The id of the image to start from, so that no newer one can come in between."
  default     = "*"
}

variable "run_tags" {
  type        = map(string)
  description = "Tags of this run: its id, the hash of all that goes in, the git revision, cookbooks' versions."
  default     = {}
}

variable "spot" {
  type        = bool
  description = "Whether the build instance is bought as a spot instance."
  default     = false
}

variable "subnet" {
  type        = string
  description = "The subnet of the build instance; empty: the default VPC's."
  default     = ""
}

variable "public" {
  type        = bool
  description = "Whether the build instance gets a public address; else it is reached by its private one."
  default     = true
}

variable "security_groups" {
  type        = list(string)
  description = "Security groups of the build instance; without, Packer makes one."
  default     = []
}

variable "key_pair" {
  type        = string
  description = "A key pair that EC2 knows; empty: Packer makes one."
  default     = ""
}

variable "private_key_file" {
  type        = string
  description = "Its private key."
  default     = ""
}

variable "payload" {
  type        = string
  description = "A tar archive: the Chef repository, checks and files of the image."
  default     = "payload.tar.gz"
}

variable "client" {
  type        = string
  description = "The Debian package of the client, which was fetched and checked beforehand."
  default     = "client.deb"
}

variable "scripts" {
  type        = string
  description = "The folder of provisioning scripts, relative to where Packer is run."
  default     = "packer/scripts"
}

variable "manifest" {
  type        = string
  description = "The file that Packer writes the images' ids to."
  default     = "manifest.json"
}

variable "endpoint" {
  type        = string
  description = "The address of EC2's API; empty: AWS's own."
  default     = ""
}

variable "ssh_timeout" {
  type        = string
  description = "How long the build instance may take until it answers."
  default     = "10m"
}

variable "polling_seconds" {
  type        = number
  description = "Time between two looks at what EC2 is busy with."
  default     = 15
}

locals {
  tags = merge(var.tags, var.run_tags)
}

# -- The build instance ------------------------------------------------------------------------------------

source "amazon-ebs" "image" {
  region              = var.region
  custom_endpoint_ec2 = var.endpoint
  # An endpoint of one's own knows no account to be asked for.
  skip_metadata_api_check = var.endpoint != ""

  source_ami_filter {
    owners      = [var.source_owner]
    most_recent = true
    filters = {
      "name"                = var.source_name
      "architecture"        = var.architecture
      "image-id"            = var.source_image
      "root-device-type"    = "ebs"
      "virtualization-type" = "hvm"
    }
  }

  # Without spot the others must not be there at all.
  instance_type       = var.spot ? null : var.instance_types[0]
  spot_instance_types = var.spot ? var.instance_types : null
  spot_price          = var.spot ? "auto" : null
  spot_tags           = var.spot ? local.tags : null

  subnet_id                   = var.subnet
  associate_public_ip_address = var.public
  security_group_ids          = var.security_groups

  # What is encrypted as a volume is encrypted as an image, and stays so in every copy: no unencrypted image
  # is made on the way, as encrypt_boot would.
  launch_block_device_mappings {
    device_name           = "/dev/sda1"
    volume_size           = var.root_disk_gib
    volume_type           = "gp3"
    iops                  = 3000
    throughput            = 250
    encrypted             = true
    delete_on_termination = true
  }

  run_tags        = merge(local.tags, { "Name" = "${var.name} (bake)" })
  run_volume_tags = local.tags

  # The instance terminates when it shuts down, whatever the cause.
  shutdown_behavior = "terminate"

  communicator              = "ssh"
  ssh_interface             = var.public ? "public_ip" : "private_ip"
  ssh_username              = var.ssh_username
  ssh_keypair_name          = var.key_pair
  ssh_private_key_file      = var.private_key_file
  ssh_timeout               = var.ssh_timeout
  ssh_handshake_attempts    = 100
  ssh_keep_alive_interval   = "15s"
  ssh_clear_authorized_keys = true

  aws_polling {
    delay_seconds = var.polling_seconds
    max_attempts  = 480
  }

  # -- The image -------------------------------------------------------------------------------------------

  ami_name                = var.name
  ami_description         = "Causeway image ${var.image}"
  ami_regions             = var.regions
  ami_virtualization_type = "hvm"
  tags                    = merge(local.tags, { "Name" = var.name })
  snapshot_tags           = merge(local.tags, { "Name" = var.name })
}

# -- What is done to it ------------------------------------------------------------------------------------

build {
  sources = ["source.amazon-ebs.image"]

  provisioner "shell" {
    script          = "${var.scripts}/wait-for-cloud-init.sh"
    execute_command = "sudo -n env {{ .Vars }} sh '{{ .Path }}'"
  }

  provisioner "file" {
    source      = var.payload
    destination = "/tmp/causeway-payload.tar.gz"
    generated   = true
  }

  provisioner "file" {
    source      = var.client
    destination = "/tmp/causeway-client.deb"
    generated   = true
  }

  provisioner "shell" {
    scripts = [
      "${var.scripts}/unpack.sh",
      "${var.scripts}/install-client.sh",
      "${var.scripts}/converge.sh",
    ]
    execute_command = "sudo -n env {{ .Vars }} sh '{{ .Path }}'"
    environment_vars = [
      "CAUSEWAY_IMAGE=${var.image}",
      "CLIENT=${var.client_name}",
      "CLIENT_VERSION=${var.client_version}",
      "CLIENT_SHA256=${var.client_sha256}",
      "CLIENT_PACKAGE=/tmp/causeway-client.deb",
    ]
  }

  provisioner "shell" {
    scripts = [
      "${var.scripts}/check.sh",
      "${var.scripts}/minimise.sh",
      "${var.scripts}/seal.sh",
    ]
    execute_command = "sudo -n env {{ .Vars }} sh '{{ .Path }}'"
    # The last one takes itself away.
    skip_clean = true
  }

  post-processor "manifest" {
    output     = var.manifest
    strip_path = true
  }
}
