# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'storage::server' do
  platform(*PLATFORMS.first)
  step_into :storage_export

  default_attributes['causeway']['name'] = 'storage-a'
  default_attributes['causeway']['site'] = 'lab'
  default_attributes['base']['users_data_bag'] = 'users'
  default_attributes['storage']['disks'] = [{ 'device' => '/dev/sdb', 'use' => 'nfs' }]
  default_attributes['storage']['sites']['lab']['exports'] = [
    { 'name' => 'home', 'export' => '/srv/home', 'clients' => %w(10.0.0.0/8 192.0.2.0/24), 'node' => 'storage-a' },
    {
      'name' => 'results', 'export' => '/srv/results', 'clients' => ['10.0.0.0/8'], 'node' => 'storage-a',
      'volumes' => true,
    },
    {
      'name' => 'sets', 'export' => '/srv/sets', 'clients' => ['10.0.0.0/8'], 'node' => 'storage-a',
      'read_only' => true,
    },
    { 'name' => 'other', 'export' => '/srv/other', 'clients' => ['10.0.0.0/8'], 'node' => 'storage-b' },
  ]

  before do
    stub_command('systemctl is-active --quiet nfs-server.service').and_return(true)
    stub_data_bag('users').and_return(%w(ada bob))
    stub_data_bag_item('users', 'ada').and_return('id' => 'ada', 'uid' => 2001, 'gid' => 2001)
    stub_data_bag_item('users', 'bob').and_return('id' => 'bob', 'uid' => 2002, 'gid' => 2002, 'action' => 'remove')
    allow(Causeway::Exports).to receive(:ours).and_return(%w(gone home))
  end

  on_each_platform do
    it 'has its disks where the exports are' do
      expect(chef_run).to create_storage_disk('exports')
        .with(devices: ['/dev/sdb'], path: '/srv', options: %w(noatime prjquota))
    end

    it 'exports what is its own, and only while the disk is mounted' do
      options = 'sync,no_subtree_check,root_squash,sec=sys,mp=/srv'
      expect(chef_run).to render_file('/etc/exports.d/home.exports')
        .with_content("/srv/home 10.0.0.0/8(rw,#{options}) 192.0.2.0/24(rw,#{options})\n")
      expect(chef_run).to render_file('/etc/exports.d/sets.exports').with_content("10.0.0.0/8(ro,#{options})")
      expect(chef_run).not_to create_storage_export('other')
    end
  end

  it 'lets everyone write to exports other than homes' do
    expect(chef_run).to create_storage_export('results').with(mode: '1777')
    expect(chef_run).to create_storage_export('home').with(mode: '0755')
    expect(chef_run).to create_storage_export('sets').with(mode: '0755')
  end

  it 'has a folder for volumes, and empties what was deleted' do
    expect(chef_run).to create_directory('/srv/results/volumes').with(owner: 'nobody', mode: '0700')
    expect(chef_run).not_to create_directory('/srv/home/volumes')
    expect(chef_run).to enable_systemd_unit('causeway-deleted-volumes.timer')
  end

  it 'limits the homes that are on its own disks' do
    expect(chef_run).to create_storage_quota('/srv/home/ada').with(id: 2001, mountpoint: '/srv')
    expect(chef_run).not_to create_storage_quota('/srv/home/bob')
  end

  it 'copies nothing by default' do
    expect(chef_run).not_to install_apt_package('rclone')
  end

  context 'with a nightly copy' do
    default_attributes['storage']['sites']['lab']['copies'] = [
      {
        'name' => 'homes-lab', 'source' => '/srv/home', 'bucket' => 'copies', 'region' => 'us-east-1',
        'prefix' => 'lab/home/', 'at' => '02:30', 'node' => 'storage-a',
      },
      { 'name' => 'other', 'source' => '/srv/other', 'bucket' => 'copies', 'node' => 'storage-b' },
    ]

    before { allow(Causeway::Copies).to receive(:ours).and_return(%w(gone homes-lab)) }

    it 'makes it, and no other' do
      expect(chef_run).to install_apt_package('rclone')
      expect(chef_run).to create_storage_copy('homes-lab').with(source: '/srv/home', mountpoint: '/srv')
      expect(chef_run).not_to create_storage_copy('other')
      expect(chef_run).to remove_storage_copy('gone')
    end
  end

  it 'tells the server' do
    expect(chef_run.storage_export('home')).to notify('execute[exportfs]').to(:run).delayed
    expect(chef_run).to enable_service('nfs-server')
    expect(chef_run).to start_service('nfs-server')
  end

  it 'exports no longer what is gone' do
    expect(chef_run).to remove_storage_export('gone')
    expect(chef_run).to delete_file('/etc/exports.d/gone.exports')
    expect(chef_run).not_to remove_storage_export('home')
  end

  it 'has a folder for everyone who is still there' do
    expect(chef_run).to create_directory('/srv/home/ada').with(owner: 2001, mode: '0700')
    expect(chef_run).not_to create_directory('/srv/home/bob')
    expect(chef_run).not_to create_directory('/srv/sets/ada')
  end

  it 'speaks version 4 alone' do
    expect(chef_run).to render_file('/etc/nfs.conf.d/causeway.conf').with_content('vers3=n')
    expect(chef_run.template('/etc/nfs.conf.d/causeway.conf')).to notify('service[nfs-server]').to(:restart)
    %w(rpcbind.socket rpcbind.service rpc-statd.service).each do |unit|
      expect(chef_run).to mask_systemd_unit(unit)
    end
  end

  context 'with nothing but the system disk' do
    override_attributes['storage']['server']['path'] = '/srv'
    before { chef_runner.node.override['storage']['disks'] = [] }

    it 'asks for no mount' do
      expect(chef_run).to render_file('/etc/exports.d/home.exports').with_content('sec=sys)')
    end
  end

  context 'while baking' do
    override_attributes['causeway']['baking'] = true

    it 'does nothing' do
      expect(chef_run).not_to install_apt_package('nfs-kernel-server')
    end
  end
end
