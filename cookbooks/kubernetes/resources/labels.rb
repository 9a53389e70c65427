# frozen_string_literal: true

provides :kubernetes_labels
unified_mode true

description "A node's labels. The kubelet gives them when it registers and never again; here they are kept, by " \
  'the credentials of the kubelet, which may label its own node and none other. An API that is away is said, and ' \
  'is not a failure.'

property :node_name, String,
  name_property: true,
  description: "The node's name"

property :labels, Hash,
  default: {},
  coerce: proc { |value| value.to_h.transform_values(&:to_s) },
  description: 'The labels'

property :taints, Array,
  default: [],
  description: 'Taints that it should have. A kubelet may not change them: what lacks is said'

property :kubeconfig, String,
  default: '/etc/kubernetes/kubelet.conf',
  description: "The kubelet's credentials"

property :state, String,
  default: '/var/lib/causeway/kubernetes-labels',
  description: 'The labels that were given, a line each: those that are wanted no more are taken away'

action :reconcile, description: 'Give the labels that lack, take away those that were given before.' do
  begin
    there = cluster.own_node(new_resource.node_name)
  rescue Causeway::Cluster::Failed => e
    log "labels of #{new_resource.node_name}" do
      message "The labels of #{new_resource.node_name} are as they were: #{e.message}"
      level :warn
    end
    return
  end

  changes = Causeway::NodeRegistration.changes(
    wanted: new_resource.labels, there: there['metadata']['labels'] || {}, given: given
  )
  unless changes.empty?
    converge_by("label #{new_resource.node_name}: #{in_words(changes)}") do
      cluster.label(new_resource.node_name, changes)
    end
  end

  directory ::File.dirname(new_resource.state) do
    mode '0755'
    recursive true
  end

  file new_resource.state do
    content new_resource.labels.keys.sort.map { |label| "#{label}\n" }.join
    mode '0644'
    backup false
  end

  missing = Causeway::NodeRegistration.missing(new_resource.taints, there['spec']['taints'] || [])
  log "taints of #{new_resource.node_name}" do
    message "#{new_resource.node_name} lacks #{missing.map { |each| as_written(each) }.join(', ')}, and may not " \
      "taint itself: `kubectl taint node #{new_resource.node_name} …` on a master"
    level :warn
    not_if { missing.empty? }
  end
end

action_class do
  def cluster
    @cluster ||= Causeway::Cluster.new(new_resource.kubeconfig)
  end

  def given
    ::File.exist?(new_resource.state) ? ::File.readlines(new_resource.state, chomp: true) : []
  end

  # As `kubectl label` has it: a=1 b-
  def in_words(changes)
    changes.map { |label, value| value ? "#{label}=#{value}" : "#{label}-" }.join(' ')
  end

  def as_written(taint)
    key, value, effect = taint
    value.empty? ? "#{key}:#{effect}" : "#{key}=#{value}:#{effect}"
  end
end
