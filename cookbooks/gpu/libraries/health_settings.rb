# frozen_string_literal: true

module Causeway
  # What the health check reads (files/gpu_health/settings.py has the same names).
  module HealthSettings
    module_function

    # Below the folder that Node Feature Discovery's agent reads.
    FEATURES = '/etc/kubernetes/node-feature-discovery/features.d/causeway-gpu'

    def of(node)
      gpu = node['gpu']
      health = gpu['health']
      {
        'count' => gpu['count'],
        'xids' => gpu['fatal_xids'].to_a,
        'node' => health['cordon'] || health['taint'] ? node_name(node) : nil,
        'cordon' => health['cordon'] && !health['taint'],
        'features' => health['taint'] ? FEATURES : nil,
      }.merge(health.to_h.slice('bad_after', 'good_after', 'timeout', 'uncorrectable'))
    end

    # As the kubernetes cookbook names it.
    def node_name(node)
      node.read('kubernetes', 'node_name') || node.read('causeway', 'name') || node['hostname']
    end
  end
end
