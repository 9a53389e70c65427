# frozen_string_literal: true

#
# Cookbook:: base
# Recipe:: updates
#

package 'unattended-upgrades'

template '/etc/apt/apt.conf.d/52causeway-unattended-upgrades' do
  source 'unattended-upgrades.conf.erb'
  mode '0644'
  verify 'apt-config --config-file=%{path} dump'
end
