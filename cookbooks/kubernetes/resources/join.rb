# frozen_string_literal: true

provides :kubernetes_join
unified_mode true

description 'A machine as a node of a cluster, by `kubeadm join`. What it needs is read from a file of ' \
  'secrets and is on no other disk.'

property :node_name, String,
  name_property: true,
  description: "The node's name"

property :endpoint, String,
  required: true,
  description: 'The API of the cluster, `host:port`; the secrets file may name another'

property :secrets, String,
  required: true,
  description: 'A YAML file with `token`, and `ca` (PEM) or `ca_cert_hashes`'

property :master, [true, false],
  default: false,
  description: 'Join as one more master'

property :address, String,
  description: "The address of a master's API server; by default that of the default route"

action :join, description: 'Join the cluster, unless the kubelet has its credentials.' do
  return if ::File.exist?('/etc/kubernetes/kubelet.conf') && !unfinished?

  refuse_unfinished

  # A worker that got a token but no certificate has only that to forget.
  execute 'forget an attempt to join' do
    command %w(kubeadm reset --force)
    only_if { ::File.exist?('/etc/kubernetes/bootstrap-kubelet.conf') }
  end

  kubeadm('join') do
    secrets = Causeway::Kubeadm.secrets(::File.read(new_resource.secrets), new_resource.secrets)
    configuration = Causeway::Kubeadm.join(
      name: new_resource.node_name,
      endpoint: new_resource.endpoint,
      secrets: secrets,
      address: new_resource.address,
      master: new_resource.master
    )
    [Causeway::Kubeadm.yaml(configuration), Causeway::Kubeadm.discovery_file(new_resource.endpoint, secrets)]
  end
end

action_class do
  include Causeway::Kubeadm::Run
end
