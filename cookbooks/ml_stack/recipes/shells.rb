# frozen_string_literal: true

#
# Cookbook:: ml_stack
# Recipe:: shells
#
# `conda activate ml` in everybody's shell, and units that everybody can start for themselves.

settings = node['ml_stack']
environment = "#{settings['conda']}/envs/#{settings['environment']}"

template '/etc/profile.d/ml_stack.sh' do
  source 'profile.sh.erb'
  mode '0644'
  variables(conda: settings['conda'], environment: settings['activate'] ? environment : nil)
  verify 'sh -n %{path}'
end

template '/etc/systemd/user/tensorboard@.service' do
  source 'tensorboard@.service.erb'
  mode '0644'
  variables(environment: environment)
  action settings['tensorboard_unit'] ? :create : :delete
end

template '/etc/systemd/user/jupyterlab.service' do
  source 'jupyterlab.service.erb'
  mode '0644'
  variables(environment: environment)
  action settings['jupyterlab']['enabled'] ? :create : :delete
end
