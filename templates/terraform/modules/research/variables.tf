variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "issuer" {
  description = "Where the API server's public keys are published: a bucket, and its URL, which tokens of service accounts name as their issuer."
  type = object({
    bucket = string
    url    = string
    tags   = optional(map(string), {})
  })

  validation {
    condition     = can(regex("^https://[^/]+$", var.issuer.url))
    error_message = "An issuer is https:// and a host, without a path."
  }
}

variable "bucket" {
  description = "The bucket that code and what runs leave goes to."
  type        = string
}

variable "kms_key" {
  description = "ARN of the KMS key that the bucket is encrypted with. Null for S3's own keys."
  type        = string
  default     = null
}

variable "roles" {
  description = "IAM role by namespace: what the namespace's service account \"work\" may become."
  type        = map(string)

  validation {
    condition     = alltrue([for name in values(var.roles) : can(regex("^[A-Za-z0-9+=,.@_-]{1,64}$", name))])
    error_message = "A role's name has 1 to 64 letters, digits and +=,.@_-."
  }
}
