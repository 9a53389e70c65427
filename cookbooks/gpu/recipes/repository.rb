# frozen_string_literal: true

#
# Cookbook:: gpu
# Recipe:: repository
#
# NVIDIA's CUDA repository. Drivers come from it, or never: one of its packages among the distribution's is how
# `nvidia-smi` comes to say that driver and library do not fit.

gpu = node['gpu']
uri = gpu['repository']['uri'] || Causeway::Driver.repository(
  platform: node['platform'], version: node['platform_version'], machine: node['kernel']['machine']
)
drivers = gpu['source'] == 'nvidia'
key = gpu['repository']['key_url'] || Causeway::Driver.repository_key(uri)

base_apt_source 'cuda' do
  uri uri
  suites '/'
  key_url key
  key_checksum gpu['repository']['key_checksum'] if gpu['repository']['key_checksum']
  if drivers
    pin_packages Causeway::Driver.family_of_packages
    pin_version "#{gpu['driver_version'] || gpu['driver']}#{gpu['driver_version'] ? '-' : '.'}*"
  end
end

# By its label, which mirrors keep. APT takes the first record that fits, in the order of the files' names: what
# is pinned by its version comes before this.
apt_preference 'zz-no-drivers-from-cuda' do
  glob Causeway::Driver.family_of_packages.join(' ')
  pin 'release l=NVIDIA CUDA'
  pin_priority '-1'
  action drivers ? :remove : :add
end
