# frozen_string_literal: true

module Causeway
  # Lines of exports(5).
  module Exports
    MARK = '# Written by Chef: changes here are lost. exports(5)'
    COMMON = %w(sync no_subtree_check root_squash sec=sys).freeze

    module_function

    # '/srv/home 10.200.0.0/24(rw,…) …'. Each client has the same. With a `mountpoint`, nothing is exported while
    # nothing is mounted there: clients would find no files, and write theirs to the system's disk.
    def line(path, clients, read_only, mountpoint = nil)
      options = [read_only ? 'ro' : 'rw', *COMMON, *(mountpoint && "mp=#{mountpoint}")].join(',')
      [quoted(path), *clients.map { |client| "#{client}(#{options})" }].join(' ')
    end

    # Blanks and the like as octal, as exports(5) has it.
    def quoted(path)
      path.gsub(/[\s\\"#]/) { |char| format('\\%03o', char.ord) }
    end

    # A service that deletes what has been in these folders, below one of a namespace, for some days. A rename sets a
    # folder's ctime (rename(2)).
    def emptying(folders, days)
      find = "/usr/bin/find %s -mindepth 2 -maxdepth 2 -ctime +#{days - 1} -exec rm -rf {} +"
      {
        'Unit' => { 'Description' => 'Deletes volumes that were deleted some days ago' },
        'Service' => {
          'Type' => 'oneshot',
          # The folder does not exist until the first volume is deleted.
          'ExecStart' => folders.map { |folder| "-#{format(find, folder)}" },
          'Nice' => '19',
          'IOSchedulingClass' => 'idle',
        },
      }
    end

    # Names of exports that were written by us: others' (ZFS has its own there) are theirs.
    def ours(folder)
      files = Dir.glob("#{folder}/*.exports").select { |file| ::File.read(file).start_with?(MARK) }
      files.map { |file| ::File.basename(file, '.exports') }.sort
    end

    # The folder above all of them.
    def parent(paths)
      parents = paths.map { |path| path.split('/')[0..-2] }
      common = parents.first.take_while.with_index { |part, at| parents.all? { |each| each[at] == part } }
      common.size < 2 ? nil : common.join('/')
    end

    def threads(cpus)
      (cpus * 4).clamp(16, 128)
    end
  end
end
