# frozen_string_literal: true

provides :storage_mount
unified_mode true

description 'A file system at a path, mounted when someone walks into it: a server that is away holds up ' \
  'neither the boot nor this run.'

property :path, String,
  name_property: true,
  description: 'Where it is mounted'

property :what, String,
  description: 'What is mounted: `server:/export`, `fs-0123abcd`, `s3://bucket/`, or a folder that is bound'

property :type, String,
  description: 'The file system: `nfs4`, `efs`, `mount-s3`, or `none` for a folder'

property :options, Array,
  default: [],
  description: 'Mount options'

property :environment, Hash,
  default: {},
  description: 'Environment of the mount program'

property :timeout, Integer,
  default: 30,
  description: 'Seconds that the mount may take'

action :create, description: 'Have systemd mount it on demand.' do
  # Under a mount the folder is the file system itself, whose owner and mode are not ours.
  directory new_resource.path do
    mode '0755'
    recursive true
    not_if { ::File.directory?(new_resource.path) }
  end

  # An unused one is remounted at the next access; umount refuses one that is in use.
  execute "unmount #{new_resource.path}, which has changed" do
    command ['systemctl', 'stop', "#{unit}.mount"]
    timeout new_resource.timeout + 30
    ignore_failure true
    only_if { mounted? }
    action :nothing
  end

  systemd_unit "#{unit}.mount" do
    content(
      # As often as someone walks into it: after five failures within ten seconds systemd would give up the
      # automount too, and the path would stay without its files once the server is back.
      'Unit' => {
        'Description' => "#{new_resource.what} at #{new_resource.path}", 'StartLimitIntervalSec' => 0,
      },
      'Mount' => {
        'What' => new_resource.what,
        'Where' => new_resource.path,
        'Type' => new_resource.type,
        'Options' => new_resource.options.join(','),
        'TimeoutSec' => new_resource.timeout,
        'Environment' => new_resource.environment.map { |name, value| "#{name}=#{value}" },
      }.reject { |_, value| value == [] },
      Causeway::MountUnits::MARK => { 'Cookbook' => 'storage' }
    )
    verify false
    action :create
    notifies :run, "execute[unmount #{new_resource.path}, which has changed]", :immediately
  end

  systemd_unit "#{unit}.automount" do
    content(
      'Unit' => { 'Description' => "#{new_resource.path}, when someone walks into it" },
      'Automount' => { 'Where' => new_resource.path },
      'Install' => { 'WantedBy' => 'remote-fs.target' }
    )
    verify false
    action %i(create enable)
  end

  # The kernel's automounter is not there in a container.
  systemd_unit "start #{unit}.automount" do
    unit_name "#{unit}.automount"
    action :start
    not_if 'systemd-detect-virt --container --quiet'
  end
end

action :remove, description: 'Unmount it, and have systemd forget it. The folder stays.' do
  systemd_unit "#{unit}.automount" do
    action %i(stop disable delete)
  end

  systemd_unit "#{unit}.mount" do
    action %i(stop delete)
  end
end

action_class do
  def unit
    Causeway::MountUnits.escape(new_resource.path)
  end

  def mounted?
    !shell_out('systemctl', 'is-active', '--quiet', "#{unit}.mount").error?
  end
end
