# frozen_string_literal: true

module Causeway
  # What a node says of itself when it registers.
  module NodeRegistration
    SOCKET = 'unix:///run/containerd/containerd.sock'

    # Labels of Kubernetes' own that a kubelet may set on its node; it does not start with any other of these
    # prefixes (--node-labels, and the NodeRestriction admission plugin).
    OWN = /(\A|\.)(kubernetes|k8s)\.io\z/.freeze
    ALLOWED_PREFIXES = /(\A|\.)(kubelet|node)\.kubernetes\.io\z/.freeze
    ALLOWED = %w(
      kubernetes.io/hostname kubernetes.io/arch kubernetes.io/os beta.kubernetes.io/arch beta.kubernetes.io/os
      beta.kubernetes.io/instance-type node.kubernetes.io/instance-type
      topology.kubernetes.io/region topology.kubernetes.io/zone
      failure-domain.beta.kubernetes.io/region failure-domain.beta.kubernetes.io/zone
    ).freeze

    TAINT = /\A(?<key>[^=:]+)(?:=(?<value>[^:]*))?:(?<effect>NoSchedule|PreferNoSchedule|NoExecute)\z/.freeze

    module_function

    # 'a=1,b=2', sorted. A label that keeps the kubelet from starting is an ArgumentError.
    def labels(wanted)
      refused = wanted.keys.reject { |label| label?(label) }
      unless refused.empty?
        raise ArgumentError, "node['kubernetes']['labels']: no kubelet may give itself #{refused.join(', ')}"
      end

      wanted.sort.map { |pair| pair.join('=') }.join(',')
    end

    def label?(label)
      prefix = label.include?('/') ? label.split('/').first : ''
      !prefix.match?(OWN) || ALLOWED.include?(label) || prefix.match?(ALLOWED_PREFIXES)
    end

    # 'gpu=true:NoSchedule', or a hash of the same → {'key', 'value', 'effect'}; an empty value is left out.
    def taint(written)
      return written.to_h.slice('key', 'value', 'effect').compact if written.respond_to?(:to_h)

      found = TAINT.match(written)
      raise ArgumentError, "node['kubernetes']['taints']: #{written} is not key=value:Effect" unless found

      found.named_captures.reject { |_, each| each.nil? || each.empty? }
    end

    # What a node's labels lack, as a merge patch; nil for one that was given before and no more. Labels of others
    # (the kubelet's own, GPU discovery's) are left alone.
    def changes(wanted:, there:, given:)
      gone = (given - wanted.keys).select { |label| there.key?(label) }
      wanted.reject { |label, value| there[label] == value }.merge(gone.to_h { |label| [label, nil] })
    end

    # Taints that a node lacks.
    def missing(wanted, there)
      written = ->(each) { [each['key'], each['value'].to_s, each['effect']] }
      wanted.map { |each| written.call(taint(each)) } - there.map(&written)
    end

    # The kubelet's flags, which have no field in its configuration.
    def arguments(labels:, node_ip:, further:)
      { 'node-ip' => node_ip, 'node-labels' => labels }.merge(further)
        .reject { |_, value| value.nil? || value == '' }
    end
  end
end
