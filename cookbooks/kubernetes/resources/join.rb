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
  return if joined? && !unfinished?

  refuse_unfinished

  # A worker that got no certificate has nothing else to forget, and kubeadm does not write over it.
  attempted = attempted?
  execute 'forget an attempt to join' do
    command %w(kubeadm reset --force)
    only_if { attempted }
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

  def joined?
    ::File.exist?(master? ? '/etc/kubernetes/kubelet.conf' : Causeway::Kubeadm::CLIENT_CERTIFICATE)
  end

  # A master's authority is brought to it beforehand.
  def attempted?
    left = master? ? %w(bootstrap-kubelet.conf) : %w(bootstrap-kubelet.conf kubelet.conf pki/ca.crt)
    left.any? { |name| ::File.exist?("/etc/kubernetes/#{name}") }
  end
end
