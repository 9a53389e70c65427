# frozen_string_literal: true

#
# Cookbook:: kubernetes
# Recipe:: worker
#
# A worker: joins the cluster once the secret for it has been brought.

include_recipe 'kubernetes::default'

return if node.read('causeway', 'baking')

include_recipe 'kubernetes::efa'

settings = node['kubernetes']
secrets = settings['join']['file']

# Workers only: users of an SSH node can use its instance's role, which must not get a machine of theirs
# into the cluster. To gateways and SSH nodes `invoke converge` brings it.
ways_in = %w(access-gateway ssh-node)
by_itself = settings['join']['parameter'] && !ways_in.include?(node.read('causeway', 'role'))

# Again in each run until the node has joined: a token that was fetched earlier may have expired.
kubernetes_secret secrets do
  parameter settings['join']['parameter']
  region Causeway::Instance.store(settings['join'])
  wait settings['join']['wait']
  only_if { by_itself && !Causeway::Instance.facts.empty? }
  not_if { ::File.exist?(Causeway::Kubeadm::CLIENT_CERTIFICATE) }
end

log 'the secret to join the cluster is not here yet' do
  message "#{secrets} is not here yet: this machine does not join the cluster in this run"
  level :warn
  not_if { ::File.exist?(Causeway::Kubeadm::CLIENT_CERTIFICATE) || ::File.exist?(secrets) }
end

name = settings['node_name'] || node.read('causeway', 'name') || node['hostname']
endpoint = settings['endpoint'] || node['causeway']['api']

if endpoint
  kubernetes_join name do
    endpoint endpoint
    secrets secrets
    only_if { ::File.exist?(secrets) }
  end
else
  log 'no cluster to join' do
    message 'Neither kubernetes.endpoint nor causeway.api says where the API is: this machine joins no cluster'
    level :warn
  end
end

kubernetes_secret "#{secrets}, not needed any more" do
  file secrets
  action :forget
  only_if { by_itself && !Causeway::Instance.facts.empty? }
  only_if { ::File.exist?(Causeway::Kubeadm::CLIENT_CERTIFICATE) }
end

kubernetes_labels name do
  labels Causeway::Instance.labels(settings['labels'].to_h)
  taints settings['taints'].to_a
  action :reconcile
  only_if { ::File.exist?(Causeway::Kubeadm::CLIENT_CERTIFICATE) }
end
