# frozen_string_literal: true

#
# Cookbook:: base
# Recipe:: logs
#

directory '/etc/systemd/journald.conf.d'

template '/etc/systemd/journald.conf.d/causeway.conf' do
  source 'journald.conf.erb'
  mode '0644'
  notifies :restart, 'service[systemd-journald]', :delayed
end

service 'systemd-journald' do
  action :nothing
end
