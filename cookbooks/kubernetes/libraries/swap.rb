# frozen_string_literal: true

module Causeway
  # Swap, as fstab(5) and /proc/swaps tell of it.
  module Swap
    module_function

    # An fstab whose swap lines are comments.
    def without(fstab)
      fstab.lines.map { |line| swap?(line) ? "# off, for the kubelet: #{line}" : line }.join
    end

    def swap?(line)
      fields = line.split
      !line.lstrip.start_with?('#') && fields[2] == 'swap'
    end

    # /proc/swaps has a head line.
    def used?(table)
      table.lines.size > 1
    end
  end
end
