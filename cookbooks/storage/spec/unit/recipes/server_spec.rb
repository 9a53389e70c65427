# frozen_string_literal: true

require 'chefspec'

describe 'storage::server' do
  platform 'debian', '12'

  before do
    stub_command('systemd-detect-virt --container --quiet').and_return(false)
    stub_data_bag('users').and_return(%w(ada bob))
    stub_data_bag_item('users', 'ada').and_return('id' => 'ada', 'uid' => 2001, 'gid' => 2001)
    stub_data_bag_item('users', 'bob').and_return('id' => 'bob', 'uid' => 2002, 'gid' => 2002, 'action' => 'remove')
  end

  let(:chef_run) do
    ChefSpec::SoloRunner.new(platform: 'debian', version: '12') do |node|
      node.normal['causeway'] = { name: 'storage-a', site: 'lab' }
      node.normal['base']['users_data_bag'] = 'users'
      node.normal['storage']['disks'] = [{ 'device' => '/dev/sdb', 'use' => 'nfs' }]
      node.normal['storage']['sites']['lab']['exports'] = [
        { 'name' => 'home', 'export' => '/srv/home', 'clients' => ['10.0.0.0/8'], 'node' => 'storage-a' },
        { 'name' => 'other', 'export' => '/srv/other', 'clients' => ['10.0.0.0/8'], 'node' => 'storage-b' },
      ]
    end.converge(described_recipe)
  end

  it 'has its disks where the exports are' do
    expect(chef_run).to create_storage_disk('exports').with(devices: ['/dev/sdb'], path: '/srv')
  end

  it 'exports what is its own' do
    expect(chef_run).to create_storage_export('home').with(clients: ['10.0.0.0/8'])
    expect(chef_run).not_to create_storage_export('other')
  end

  it 'has a folder for everyone who is still there' do
    expect(chef_run).to create_directory('/srv/home/ada').with(owner: 2001, mode: '0700')
    expect(chef_run).not_to create_directory('/srv/home/bob')
  end

  it 'speaks version 4 alone' do
    expect(chef_run).to render_file('/etc/nfs.conf.d/causeway.conf').with_content('vers3=n')
    expect(chef_run).to mask_systemd_unit('rpcbind.socket')
  end
end
