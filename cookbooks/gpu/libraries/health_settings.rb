# frozen_string_literal: true

module Causeway
  # What the health check reads (files/gpu_health/settings.py has the same names).
  module HealthSettings
    module_function

    def of(node)
      gpu = node['gpu']
      health = gpu['health']
      {
        'count' => gpu['count'],
        'xids' => gpu['fatal_xids'].to_a,
        'node' => health['cordon'] ? node_name(node) : nil,
      }.merge(health.to_h.slice('bad_after', 'good_after', 'timeout', 'uncorrectable'))
    end

    # As the kubernetes cookbook names it.
    def node_name(node)
      node.read('kubernetes', 'node_name') || node.read('causeway', 'name') || node['hostname']
    end
  end
end
