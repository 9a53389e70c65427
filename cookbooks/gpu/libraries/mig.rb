# frozen_string_literal: true

require 'mixlib/shellout'

module Causeway
  # Multi-Instance GPU.
  module Mig
    # NVIDIA's own label for it, whose value is `all-` and a size.
    LABEL = 'nvidia.com/mig.config'

    module_function

    # The size of instances that this machine's GPUs are to have, `1g.10gb`; nil: none.
    def size(node)
      node['gpu']['mig'] || node.read('kubernetes', 'labels', LABEL).to_s[/\Aall-(\d+g\.\d+gb)\z/, 1]
    end

    # Whether GPUs are split so already. GPUs that can't be split are as wanted where nothing is.
    def as_wanted?(size)
      Mixlib::ShellOut.new('/usr/local/sbin/causeway-gpu-mig', 'check', size || 'off').run_command.exitstatus.zero?
    end
  end
end
