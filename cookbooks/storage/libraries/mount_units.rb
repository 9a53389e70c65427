# frozen_string_literal: true

module Causeway
  # Mounts as systemd units (systemd.mount(5), systemd.automount(5)).
  module MountUnits
    # Units of ours have this section, which systemd leaves alone; by it old ones are found again.
    MARK = 'X-Causeway'

    module_function

    # As `systemd-escape --path` has it: /data/a-b → data-a\x2db
    def escape(path)
      parts = path.split('/').reject(&:empty?)
      return '-' if parts.empty?

      parts.map { |part| part.bytes.each_with_index.map { |byte, at| letter(byte, at) }.join }.join('-')
    end

    def letter(byte, position)
      char = byte.chr
      plain = char.match?(/[A-Za-z0-9:_]/) || (char == '.' && position.positive?)
      plain ? char : format('\\x%02x', byte)
    end

    # What a mount is to systemd: [what, type, options]. On the server itself its own export is bound to the
    # path. `defaults`: options by kind. `role`: whether the machine has a role in AWS.
    def parts(mount, defaults, host, role)
      case mount['kind']
      when 'nfs' then host == mount['server'] ? bind(mount) : nfs(mount, defaults)
      when 'efs' then efs(mount, defaults, role)
      when 's3' then s3(mount, defaults)
      else raise ArgumentError, "A mount of kind #{mount['kind']}, at #{mount['path']}: nfs, efs or s3"
      end
    end

    def bind(mount)
      [mount['export'], 'none', ['bind', *read_only(mount)]]
    end

    def nfs(mount, defaults)
      ["#{mount['server']}:#{mount['export']}", 'nfs4', ['_netdev', defaults['nfs'], *read_only(mount)]]
    end

    # `iam` authenticates the machine: without it root is mapped to `nobody`, whatever the file system's policy allows
    # its role, and homes cannot be created. The helper signs only over TLS.
    def efs(mount, defaults, role)
      own = ["region=#{mount['region']}"]
      own << 'tls' unless mount['tls'] == false
      own << 'iam' if role && mount['tls'] != false
      own << "accesspoint=#{mount['access_point']}" if mount['access_point']
      [mount['file_system'], 'efs', ['_netdev', *own, defaults['efs'], *read_only(mount)]]
    end

    # All files are the machine's: what someone may write is said by its role in AWS, not by modes.
    def s3(mount, defaults)
      prefix = mount['prefix'].to_s
      prefix = "#{prefix.chomp('/')}/" unless prefix.empty?
      own = ["region=#{mount['region']}"]
      own += %w(allow-delete allow-overwrite dir-mode=0777 file-mode=0666) unless mount['read_only']
      ["s3://#{mount['bucket']}/#{prefix}", 'mount-s3', ['_netdev', *own, defaults['s3'], *read_only(mount)]]
    end

    def read_only(mount)
      mount['read_only'] ? ['ro'] : []
    end

    # Paths that units of ours in a folder mount.
    def ours(folder)
      texts = Dir.glob("#{folder}/*.mount").map { |file| ::File.read(file) }
      texts.select { |text| text.include?("[#{MARK}]") }.map { |text| text[/^Where ?= ?(.+)$/, 1] }
    end
  end
end
