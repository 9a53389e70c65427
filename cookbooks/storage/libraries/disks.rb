# frozen_string_literal: true

require 'json'

module Causeway
  # Disks, and whether anything is on them.
  module Disks
    COLUMNS = 'NAME,PATH,TYPE,SIZE,RO,FSTYPE,PTTYPE,LABEL,MOUNTPOINT'

    module_function

    # lsblk's tree. It reads signatures from udev, or by itself as root.
    def tree(*devices)
      ran = Mixlib::ShellOut.new('lsblk', '--json', '--bytes', '--paths', '--output', COLUMNS, *devices)
      ran.run_command
      ran.error? ? [] : JSON.parse(ran.stdout)['blockdevices']
    end

    # Paths of whole disks with nothing on them. A container sees its host's disks and has no devices for them.
    def blank(tree, there: ->(path) { ::File.blockdev?(path) })
      disks = tree.select { |each| each['type'] == 'disk' && each['size'].to_i.positive? && !each['ro'] }
      disks.select { |disk| contents(disk).nil? }.map { |disk| disk['path'] }.select(&there).sort
    end

    # What is on a disk, in words; nil where it is blank.
    def contents(disk)
      return "partitions of #{disk['children'].size}" if disk['children'] && disk['pttype']
      return "a part of #{disk['children'].first['path']}" if disk['children']
      return "a partition table (#{disk['pttype']})" if disk['pttype']
      # lsblk sees no signature of a mounted disk without udev's database.
      return disk['mountpoint'] && "mounted at #{disk['mountpoint']}" unless disk['fstype']

      [disk['fstype'], disk['label'] && "labelled #{disk['label']}"].compact.join(' ')
    end

    # A signature that lsblk has not seen yet, or does not know: blkid probes the disk itself. Exit 2 is none.
    def signature(device)
      probe = Mixlib::ShellOut.new('blkid', '--probe', device).run_command
      probe.exitstatus == 2 ? nil : probe.stdout.strip
    end

    # The device with a file system of that label; nil where there is none.
    def labelled(label)
      search = Mixlib::ShellOut.new('blkid', '--cache-file', '/dev/null', '--label', label).run_command
      found = search.stdout.strip
      found.empty? ? nil : found
    end
  end
end
