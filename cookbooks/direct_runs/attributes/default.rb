# frozen_string_literal: true

# Debian packages. podman without root maps ids of users (uidmap), has networks (slirp4netns, passt) and layered
# file systems (fuse-overlayfs) of its own, and asks the person's systemd for control groups (dbus-user-session).
default['direct_runs']['packages'] = %w(
  dbus-user-session fuse-overlayfs libpam-systemd nftables podman python3 python3-venv slirp4netns uidmap
)

# Where builds of uv are, a folder for each version. The version is the pin in `node['software']['uv']`.
default['direct_runs']['uv'] = '/opt/causeway/uv'

# PyPI, or a mirror of it, that uv comes from. nil: pip's own setting.
default['direct_runs']['index'] = nil

# Whether a table of nftables lets in SSH, and from the private network everything: workers of one run meet at
# ports of their own choice.
default['direct_runs']['firewall'] = true
