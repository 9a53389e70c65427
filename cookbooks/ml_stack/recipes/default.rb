# frozen_string_literal: true

#
# Cookbook:: ml_stack
# Recipe:: default
#

include_recipe 'ml_stack::conda'
include_recipe 'ml_stack::environment'
include_recipe 'ml_stack::shells'
