# frozen_string_literal: true

require 'open3'

module Causeway
  # Project quotas of XFS, as its tools report them.
  module Quotas
    module_function

    # The number of the project that new files in a folder belong to; 0 without one.
    def project(folder)
      text, status = Open3.capture2('lsattr', '-pd', folder, err: File::NULL)
      status.success? ? parse_project(text) : 0
    rescue Errno::ENOENT
      0
    end

    # MiB that a project may hold; 0 without a limit.
    def limit(mountpoint, id)
      text, status = Open3.capture2('xfs_quota', '-x', '-c', 'report -p -n -N -b', mountpoint, err: File::NULL)
      status.success? ? parse_limit(text, id) : 0
    rescue Errno::ENOENT
      0
    end

    # ' 2001 -------------------P-- /srv/home/ada'. Without the flag P the folder's files are not part of it.
    def parse_project(text)
      id, flags = text.split
      flags.to_s.include?('P') ? id.to_i : 0
    end

    # '#2001   1024   0   2097152   00 [--------]': used, soft and hard limit, in KiB.
    def parse_limit(text, id)
      line = text.lines.map(&:split).find { |words| words.first == "##{id}" }
      line ? line[3].to_i / 1024 : 0
    end
  end
end
