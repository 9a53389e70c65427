# frozen_string_literal: true

#
# Cookbook:: gpu
# Recipe:: default
#

include_recipe 'gpu::driver'
include_recipe 'gpu::fabric_manager' if node['gpu']['fabric_manager']
include_recipe 'gpu::mig'
include_recipe 'gpu::toolkit' if node['gpu']['cuda']
include_recipe 'gpu::containers' if node['gpu']['container_toolkit']['enabled']
include_recipe 'gpu::metrics' if node['gpu']['dcgm']['enabled']
include_recipe 'gpu::health' if node['gpu']['health']['enabled']
