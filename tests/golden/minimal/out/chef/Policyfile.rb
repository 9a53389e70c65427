# frozen_string_literal: true

# The cluster minimal, environment minimal, as a policy: https://docs.chef.io/policyfile/
# A policy knows neither roles nor environments. Each role is a run list of its name here (`named_run_list` in
# client.rb chooses one), and the environment's attributes are the policy's. What a role or a node sets on top of
# them, such as the branch of a driver, comes with the node's own JSON: `chef-client --json-attributes`.

require 'json'

name 'minimal'
run_list 'base'

named_run_list :'access-gateway', 'base', 'network_access', 'container_runtime', 'kubernetes::worker'
named_run_list :'base', 'base'
named_run_list :'control-plane', 'base', 'container_runtime', 'kubernetes::control_plane', 'storage'
named_run_list :'gpu-worker', 'base', 'storage', 'gpu', 'container_runtime', 'kubernetes::worker'
named_run_list :'nfs-server', 'base', 'storage::server'
named_run_list :'site-gateway', 'base', 'network_site'
named_run_list :'ssh-node', 'base', 'storage', 'ml_stack', 'ssh_node', 'container_runtime', 'kubernetes::worker'
named_run_list :'worker', 'base', 'storage', 'container_runtime', 'kubernetes::worker'

cookbook 'base', path: '../../../cookbooks/base'
cookbook 'container_runtime', path: '../../../cookbooks/container_runtime'
cookbook 'direct_runs', path: '../../../cookbooks/direct_runs'
cookbook 'gpu', path: '../../../cookbooks/gpu'
cookbook 'kubernetes', path: '../../../cookbooks/kubernetes'
cookbook 'ml_stack', path: '../../../cookbooks/ml_stack'
cookbook 'network_access', path: '../../../cookbooks/network_access'
cookbook 'network_site', path: '../../../cookbooks/network_site'
cookbook 'ssh_node', path: '../../../cookbooks/ssh_node'
cookbook 'storage', path: '../../../cookbooks/storage'

environment = JSON.parse(File.read(File.expand_path('environments/minimal.json', File.dirname(__FILE__))))
environment.fetch('default_attributes').each { |cookbook, attributes| default[cookbook] = attributes }
