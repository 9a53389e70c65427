# frozen_string_literal: true

#
# Cookbook:: gpu
# Recipe:: toolkit
#
# nvcc and what belongs to it, for those who compile.

include_recipe 'gpu::repository'

apt_package Causeway::Driver.toolkit(node['gpu']['cuda'], node['lsb']['codename']) do
  options '--no-install-recommends'
end

cookbook_file '/etc/profile.d/cuda.sh' do
  source 'cuda.sh'
  mode '0644'
end
