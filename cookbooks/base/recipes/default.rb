# frozen_string_literal: true

#
# Cookbook:: base
# Recipe:: default
#

include_recipe 'base::packages'
include_recipe 'base::name'
include_recipe 'base::network'
include_recipe 'base::users'
include_recipe 'base::ssh'
include_recipe 'base::time'
include_recipe 'base::updates'
include_recipe 'base::logs'
include_recipe 'base::kernel'
include_recipe 'base::metrics'
