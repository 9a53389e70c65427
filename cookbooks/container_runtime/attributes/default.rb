# frozen_string_literal: true

# containerd's version: `2.1.4`, or `2.1` for the newest of that line. nil takes the distribution's package
# and leaves its updates to unattended upgrades; with a version, the package comes from `repository`.
default['container_runtime']['version'] = nil

# Where a pinned containerd comes from: Docker's archive, whose `containerd.io` brings runc along. `uri` and
# `key_url` may name a mirror. nil suites: the release's code name.
default['container_runtime']['repository'] = {
  'uri' => "https://download.docker.com/linux/#{node['platform']}",
  'suites' => nil,
  'components' => 'stable',
  'package' => 'containerd.io',
  'key_url' => "https://download.docker.com/linux/#{node['platform']}/gpg",
  'key_checksum' => '1500c1f56fa9e26b9b8f42452a553675796ade0807cdce11975eb98170b3a570',
}

# The image that holds a pod's namespaces. nil: the one kubeadm has for the minor in `node['kubernetes']`.
default['container_runtime']['sandbox_image'] = nil

# Layers of an image that are fetched at a time. Images with CUDA have few, large layers.
default['container_runtime']['max_concurrent_downloads'] = 5

# Registry → its mirrors, in order; the registry itself comes last. `_default` stands
# for every registry that has no entry. Mirrors resolve tags too: name only ones that are trusted.
default['container_runtime']['registry_mirrors'] = {}

# PEM file of the authority that signed the mirrors' certificates; nil: the system's.
default['container_runtime']['registry_ca'] = nil

# Runtimes beside runc, by the handler's name: {'path' => program, 'default' => false}. A RuntimeClass names
# the handler.
default['container_runtime']['runtimes'] = {}

# The NVIDIA runtime. nil `enabled`: where `node['gpu']['driver']` is set. As `default` every pod gets it; it
# adds GPUs only to those that ask for one, so that device plugins and monitors need no RuntimeClass.
default['container_runtime']['nvidia'] = {
  'enabled' => nil,
  'path' => '/usr/bin/nvidia-container-runtime',
  'default' => true,
}

# Where CNI plugins and their configuration are, as kubernetes-cni and flannel put them.
default['container_runtime']['cni'] = { 'bin_dir' => '/opt/cni/bin', 'conf_dir' => '/etc/cni/net.d' }

# Kernel modules: layered file systems, and bridged traffic that passes iptables.
default['container_runtime']['modules'] = %w(overlay br_netfilter)

# Kernel settings. Pods are routed through the host; watchers and maps are what many containers use up first.
default['container_runtime']['sysctls'] = {
  'net.ipv4.ip_forward' => 1,
  'net.bridge.bridge-nf-call-iptables' => 1,
  'net.bridge.bridge-nf-call-ip6tables' => 1,
}
