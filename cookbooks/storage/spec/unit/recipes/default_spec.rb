# frozen_string_literal: true

require 'chefspec'

describe 'storage::default' do
  platform 'ubuntu', '24.04'

  let(:mounts) do
    [
      { 'path' => '/home', 'kind' => 'nfs', 'server' => 'storage-a.lab.test', 'export' => '/srv/home' },
      { 'path' => '/data', 'kind' => 's3', 'bucket' => 'data', 'region' => 'us-west-2', 'read_only' => true },
      { 'path' => '/results', 'kind' => 'efs', 'file_system' => nil, 'region' => 'us-west-2' },
    ]
  end

  default_attributes['causeway']['site'] = 'lab'
  default_attributes['causeway']['address'] = '10.200.0.11'
  default_attributes['causeway']['fqdn'] = 'titan-01.lab.test'

  before { stub_command('systemd-detect-virt --container --quiet').and_return(false) }

  let(:chef_run) do
    ChefSpec::SoloRunner.new(platform: 'ubuntu', version: '24.04') do |node|
      node.normal['causeway'] = { site: 'lab', address: '10.200.0.11', fqdn: 'titan-01.lab.test' }
      node.normal['storage']['sites']['lab']['mounts'] = mounts
      node.normal['causeway']['baking'] = baking
    end.converge(described_recipe)
  end
  let(:baking) { false }

  it 'mounts what is there, on demand' do
    expect(chef_run).to create_storage_mount('/home').with(what: 'storage-a.lab.test:/srv/home', type: 'nfs4')
    expect(chef_run).to create_storage_mount('/data').with(what: 's3://data/', type: 'mount-s3')
  end

  it 'waits for a file system that is not there' do
    expect(chef_run).not_to create_storage_mount('/results')
    expect(chef_run).to write_log('mounts that wait for their file systems')
  end

  it 'has scratch space' do
    expect(chef_run).to create_storage_disk('scratch').with(path: '/scratch', mode: '1777')
  end

  context 'while baking' do
    let(:baking) { true }

    it 'brings programs, and mounts nothing' do
      expect(chef_run).to install_apt_package('nfs-common')
      expect(chef_run).to install_storage_package('mount-s3')
      expect(chef_run).not_to create_storage_mount('/home')
      expect(chef_run).not_to create_storage_disk('scratch')
    end
  end
end
