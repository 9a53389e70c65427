# frozen_string_literal: true

#
# Cookbook:: base
# Recipe:: packages
#
# First of all: APT without prompts.
#

# Before the first of APT's commands: a fresh machine upgrades itself meanwhile, and has the locks.
cookbook_file '/etc/apt/apt.conf.d/50causeway-lock' do
  source 'apt-lock.conf'
  mode '0644'
  verify 'apt-config --config-file=%{path} dump'
end

directory '/etc/causeway'

# What `invoke converge` brings, or a cloud machine fetches: keys, join tokens.
directory '/etc/causeway/secrets' do
  mode '0700'
end

directory '/var/lib/causeway'

cookbook_file '/etc/apt/apt.conf.d/50causeway-unasked' do
  source 'apt-unasked.conf'
  mode '0644'
  verify 'apt-config --config-file=%{path} dump'
end

directory '/etc/needrestart/conf.d' do
  recursive true
end

template '/etc/needrestart/conf.d/causeway.conf' do
  source 'needrestart.conf.erb'
  mode '0644'
  verify 'perl -c %{path}'
end

apt_update 'daily' do
  frequency 86_400
  action :periodic
  # APT does not wait for the lock of its lists.
  retries 40
  retry_delay 15
  not_if { Causeway::Place.first_boot?(node) }
end

# Names of protocols: a minimal system has none, and mount.nfs fails without them.
package 'netbase'

# `htop=3.3.0-4` is that version, as apt-get takes it.
wanted = (node['base']['tools'].to_a + node['base']['packages'].to_a).uniq.sort
pinned, newest = wanted.partition { |package| package.include?('=') }
versions = pinned.to_h { |package| package.split('=', 2) }

package newest - versions.keys

versions.each do |name, wanted_version|
  package name do
    version wanted_version
  end
end
