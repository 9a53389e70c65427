# frozen_string_literal: true

#
# Cookbook:: gpu
# Recipe:: metrics
#
# DCGM for people (`dcgmi`), and its exporter, which brings a host engine of its own, for Prometheus.

include_recipe 'gpu::repository'

version = node.read('software', 'dcgm-exporter', 'version')

# With an epoch or without one.
apt_preference 'dcgm-exporter' do
  glob 'datacenter-gpu-manager-exporter'
  pin "version /^([0-9]+:)?#{version.to_s.gsub('.', '[.]')}-/"
  pin_priority '1001'
  action version ? :add : :remove
end

cuda = Causeway::Driver.cuda_major(node['gpu']['driver'], node['gpu']['family'])

apt_package "datacenter-gpu-manager-4-cuda#{cuda}" do
  options '--no-install-recommends'
end

apt_package 'datacenter-gpu-manager-exporter' do
  options '--no-install-recommends'
  action version ? :upgrade : :install
end

directory '/etc/systemd/system/nvidia-dcgm-exporter.service.d'

template '/etc/systemd/system/nvidia-dcgm-exporter.service.d/causeway.conf' do
  source 'dcgm-exporter.conf.erb'
  mode '0644'
  variables(address: Causeway::Place.private_address(node), port: node['gpu']['dcgm']['port'])
  notifies :run, 'execute[systemctl daemon-reload for the exporter of the GPUs]', :immediately
  notifies :restart, 'service[nvidia-dcgm-exporter, now]', :delayed if node['gpu']['dcgm']['exporter']
end

execute 'systemctl daemon-reload for the exporter of the GPUs' do
  command %w(systemctl daemon-reload)
  only_if { systemd? }
  action :nothing
end

service 'nvidia-dcgm-exporter' do
  action node['gpu']['dcgm']['exporter'] ? :enable : %i(disable stop)
end

service 'nvidia-dcgm-exporter, now' do
  service_name 'nvidia-dcgm-exporter'
  action :start
  only_if { node['gpu']['dcgm']['exporter'] }
  only_if { Causeway::Gpus.usable?(node) && Causeway::Place.address_there?(node) }
end
