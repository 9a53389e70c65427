variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "issuer" {
  description = "Where the API server's public keys are published: a bucket, its URL if tokens of service accounts name that as their issuer, which makes it public, and the folder of it that a CloudFront distribution serves as an issuer. Null for none."
  type = object({
    bucket            = string
    url               = optional(string)
    cloudfront_folder = optional(string)
    tags              = optional(map(string), {})
  })

  validation {
    condition     = var.issuer.url == null || can(regex("^https://[^/]+$", var.issuer.url))
    error_message = "An issuer is https:// and a host, without a path."
  }

  validation {
    condition     = var.issuer.url != null || var.issuer.cloudfront_folder != null
    error_message = "The issuer needs a url, a cloudfront_folder, or both."
  }

  validation {
    condition     = var.issuer.cloudfront_folder == null || can(regex("^[a-z][a-z0-9-]*$", var.issuer.cloudfront_folder))
    error_message = "cloudfront_folder is a name of lower-case letters, digits and hyphens."
  }
}

variable "store" {
  description = "The bucket that code and what runs leave goes to, and the ARN of the KMS key that it is encrypted with, null for S3's own keys. Null for no store."
  type = object({
    bucket  = string
    kms_key = optional(string)
  })
  default = null
}

variable "volumes" {
  description = "By name: a bucket of which each namespace has a folder as a volume, and the ARN of its KMS key."
  type = map(object({
    bucket    = string
    read_only = bool
    kms_key   = optional(string)
  }))
  default  = {}
  nullable = false
}

variable "roles" {
  description = "IAM role by namespace: what the namespace's service accounts \"default\" and \"work\" may become."
  type        = map(string)

  validation {
    condition     = alltrue([for name in values(var.roles) : can(regex("^[A-Za-z0-9+=,.@_-]{1,64}$", name))])
    error_message = "A role's name has 1 to 64 letters, digits and +=,.@_-."
  }
}

variable "tracking" {
  description = "IAM role of MLflow, which keeps artifacts in a folder of the store. Null for none."
  type        = string
  default     = null
}
