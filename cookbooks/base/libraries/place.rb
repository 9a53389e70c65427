# frozen_string_literal: true

module Causeway
  # Where a machine is, as its facts (`node['causeway']`) and Ohai have it.
  module Place
    module_function

    # The address that other machines of the cluster know it by. While an image is baked there is none yet.
    def private_address(node)
      baking?(node) ? '127.0.0.1' : node.read('causeway', 'address') || node['ipaddress']
    end

    # Whether an interface has that address: one in a rack may have another cable or another network than meant.
    def address_there?(node)
      interfaces = node.read('network', 'interfaces') || {}
      interfaces.any? { |_, interface| (interface['addresses'] || {}).key?(private_address(node)) }
    end

    # Whether an image is being made, which is to become many machines at other sites.
    def baking?(node)
      node.read('causeway', 'baking') == true
    end

    # Whether this is the one run at the first boot of a machine from an image. All is installed, and archives may be
    # out of reach, or have something newer: neither is to keep it from joining.
    def first_boot?(node)
      node.read('causeway', 'first_boot') == true
    end

    def on_aws?(node)
      !node['ec2'].nil?
    end

    # Whether another machine holds the homes.
    def homes_elsewhere?(node)
      mounts = node.read('storage', 'sites', node.read('causeway', 'site'), 'mounts') || []
      mounts.any? { |mount| mount['path'] == node['base']['homes'] }
    end
  end
end
