# frozen_string_literal: true

require 'json'

module Causeway
  # What a machine in the cloud found out about itself at its first boot: /usr/local/lib/causeway/boot writes it, as
  # EC2's instance metadata has it. Elsewhere there is none.
  module Instance
    FILE = '/etc/causeway/instance.json'

    module_function

    # {'instance_type', 'region', 'zone', 'id', 'gpus'}, or nothing.
    def facts
      File.exist?(FILE) ? JSON.parse(File.read(FILE)) : {}
    end

    # 'aws:///us-west-2a/i-0123456789abcdef0'
    def provider_id
      found = facts
      "aws:///#{found['zone']}/#{found['id']}" if found['id']
    end

    # The region of the store with the secret to join: this machine's own, where it has a copy.
    def store(join)
      own = facts['region']
      join['copies'].include?(own) ? own : join['region']
    end

    # Labels of the very machine. Those that are given win, except for what only the machine can know.
    def labels(given)
      found = facts
      {
        'topology.kubernetes.io/region' => found['region'],
        'causeway.dev/gpu-count' => found['gpus']&.positive? ? found['gpus'].to_s : nil,
      }.compact.merge(given).merge(
        {
          'topology.kubernetes.io/zone' => found['zone'],
          'node.kubernetes.io/instance-type' => found['instance_type'],
        }.compact
      )
    end
  end
end
