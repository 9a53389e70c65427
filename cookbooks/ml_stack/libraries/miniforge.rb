# frozen_string_literal: true

module Causeway
  # The pin of Miniforge.
  module Miniforge
    ARCHITECTURES = { 'x86_64' => 'amd64', 'aarch64' => 'arm64' }.freeze

    module_function

    # Where its installer is for a machine, and its SHA-256. What can't be checked is not run: an ArgumentError.
    def installer(pin, machine)
      architecture = ARCHITECTURES[machine]
      raise ArgumentError, "node['software']['miniforge'] is not set" if pin.nil? || pin['url'].nil?

      checksum = (pin['sha256'] || {})[architecture]
      unless checksum
        raise ArgumentError, "node['software']['miniforge']['sha256'] has nothing for #{architecture || machine}: " \
                             'what would be installed as root could be anything'
      end

      [format(pin['url'], arch: architecture, machine: machine), checksum]
    end
  end
end
