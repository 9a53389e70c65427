# frozen_string_literal: true

provides :storage_disk
unified_mode true

description 'A file system on blank disks, several of them striped by LVM. What is on a disk is never ' \
  'formatted over. A file system with the label is taken as it is, so that it outlives the system disk.'

property :label, String,
  name_property: true,
  regex: /\A[a-z][a-z0-9]{0,11}\z/,
  description: "The file system's label, and the volume group's name; XFS has 12 letters for it"

property :devices, Array,
  default: [],
  description: 'The disks'

property :path, String,
  required: true,
  description: 'Where it is mounted'

property :filesystem, String,
  default: 'xfs',
  equal_to: %w(xfs ext4),
  description: 'Its kind'

property :options, Array,
  default: %w(noatime),
  description: 'Mount options'

property :mode, String,
  default: '0755',
  description: 'The mode of the folder, once it is mounted'

action :create, description: 'Format what is blank, mount it now and at each boot.' do
  return unless existing || !new_resource.devices.empty?

  unless existing
    refuse_what_is_used
    format_volume(new_resource.devices.one? ? new_resource.devices.first : stripe)
  end

  directory new_resource.path do
    mode new_resource.mode
    recursive true
    not_if { ::File.directory?(new_resource.path) }
  end

  systemd_unit "#{Causeway::MountUnits.escape(new_resource.path)}.mount" do
    content(
      'Unit' => { 'Description' => "#{new_resource.label} at #{new_resource.path}" },
      'Mount' => {
        'What' => "/dev/disk/by-label/#{new_resource.label}",
        'Where' => new_resource.path,
        'Type' => new_resource.filesystem,
        'Options' => new_resource.options.join(','),
      },
      'Install' => { 'WantedBy' => 'local-fs.target' }
    )
    verify false
    action %i(create enable start)
  end

  directory new_resource.path do
    mode new_resource.mode
  end
end

action_class do
  def existing
    Causeway::Disks.labelled(new_resource.label)
  end

  def refuse_what_is_used
    new_resource.devices.each do |device|
      raise "storage_disk[#{new_resource.label}]: disk #{device} not found" unless ::File.blockdev?(device)

      disk = Causeway::Disks.tree(device).first
      found = (disk && Causeway::Disks.contents(disk)) || Causeway::Disks.signature(device)
      next unless found

      raise "storage_disk[#{new_resource.label}]: #{device} holds #{found}, and is left alone. If all " \
        "on it may go: wipefs --all #{device}"
    end
  end

  # The device of the striped volume.
  def stripe
    group = new_resource.label
    apt_package 'lvm2'

    # Without --yes it refuses a disk that has any signature.
    execute "vgcreate #{group}" do
      command ['vgcreate', group, *new_resource.devices]
    end

    execute "lvcreate #{group}" do
      command [
        'lvcreate', '--yes', '--name', group, '--extents', '100%FREE',
        '--stripes', new_resource.devices.size.to_s, '--stripesize', '256k', group,
      ]
    end
    "/dev/#{group}/#{group}"
  end

  # mkfs.xfs refuses what is not blank as well; mkfs.ext4 does not.
  def format_volume(device)
    apt_package 'xfsprogs' if new_resource.filesystem == 'xfs'

    execute "mkfs.#{new_resource.filesystem} #{device}" do
      command ["mkfs.#{new_resource.filesystem}", '-L', new_resource.label, device]
    end
  end
end
