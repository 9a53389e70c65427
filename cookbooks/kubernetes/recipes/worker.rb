# frozen_string_literal: true

#
# Cookbook:: kubernetes
# Recipe:: worker
#
# A worker: joins the cluster once the secret for it has been brought.

include_recipe 'kubernetes::default'

return if node.read('causeway', 'baking')

settings = node['kubernetes']
secrets = settings['join']['file']

log 'the secret to join the cluster is not here yet' do
  message "#{secrets} is not here yet: this machine does not join the cluster in this run"
  level :warn
  not_if { ::File.exist?('/etc/kubernetes/kubelet.conf') || ::File.exist?(secrets) }
end

name = settings['node_name'] || node.read('causeway', 'name') || node['hostname']

kubernetes_join name do
  endpoint settings['endpoint'] || node['causeway']['api']
  secrets secrets
  only_if { ::File.exist?(secrets) }
end

kubernetes_labels name do
  labels settings['labels'].to_h
  taints settings['taints'].to_a
  action :reconcile
  only_if { ::File.exist?('/etc/kubernetes/kubelet.conf') }
end
