# frozen_string_literal: true

#
# Cookbook:: gpu
# Recipe:: containers
#
# What containers reach GPUs with. That containerd uses it is said by container_runtime.

toolkit = node['gpu']['container_toolkit']
version = node.read('software', 'nvidia-container-toolkit', 'version')
packages = %w(
  nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1
)

base_apt_source 'nvidia-container-toolkit' do
  uri "#{toolkit['uri']}/#{node['kernel']['machine'] == 'aarch64' ? 'arm64' : 'amd64'}"
  suites '/'
  key_url toolkit['key_url']
  key_checksum toolkit['key_checksum'] if toolkit['key_checksum']
  pin_packages packages
  pin_version "#{version}-*" if version
end

# The pin says which version; moving it moves the packages.
apt_package packages do
  options '--no-install-recommends'
  action version ? :upgrade : :install
end

# Who may ask for GPUs, and how: the device plugin's strategy `volume-mounts`
# (https://github.com/NVIDIA/k8s-device-plugin, "device-list-strategy").
mounts = toolkit['devices'] == 'mounts'
wanted = {
  'accept-nvidia-visible-devices-envvar-when-unprivileged' => !mounts,
  'accept-nvidia-visible-devices-as-volume-mounts' => mounts,
}

execute 'how containers ask for GPUs' do
  command ['nvidia-ctk', 'config', '--in-place', *wanted.flat_map { |key, value| ['--set', "#{key}=#{value}"] }]
  not_if { Causeway::Toolkit.says?(wanted) }
end
