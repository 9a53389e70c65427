# frozen_string_literal: true

provides :kubernetes_init
unified_mode true

description 'A cluster, begun on its first master by `kubeadm init`. Once there is one, nothing is done.'

property :node_name, String,
  name_property: true,
  description: "The node's name"

property :config, Array,
  default: [],
  description: "kubeadm's documents. A ClusterConfiguration without a version gets kubeadm's own"

property :config_file, String,
  description: 'A file of such documents that is used instead'

property :endpoint, String,
  required: true,
  description: 'The API of the cluster, `host:port`. Where one answers already, none is begun'

property :certificate_key, String,
  sensitive: true,
  description: 'Where other masters get the certificates from the cluster: the key to them, 64 hexadecimal digits'

action :init, description: 'Begin the cluster.' do
  return if ::File.exist?('/etc/kubernetes/admin.conf') && !unfinished?

  refuse_unfinished

  if Causeway::Kubeadm.answers?(new_resource.endpoint)
    raise "A cluster answers at #{new_resource.endpoint}: this master must join it, and needs the join file"
  end

  # What it would print opens the cluster, and output ends up in logs.
  upload = new_resource.certificate_key ? %w(--upload-certs --skip-certificate-key-print) : []
  kubeadm('init', '--skip-token-print', *upload) do
    [new_resource.config_file ? ::File.read(new_resource.config_file) : Causeway::Kubeadm.yaml(*documents), nil]
  end
end

action_class do
  include Causeway::Kubeadm::Run

  def documents
    new_resource.config.map do |document|
      case document['kind']
      when 'ClusterConfiguration'
        { 'kubernetesVersion' => kubeadm_version }.merge(document)
      when 'InitConfiguration'
        document.merge({ 'certificateKey' => new_resource.certificate_key }.compact)
      else
        document
      end
    end
  end
end
