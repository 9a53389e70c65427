# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'storage::default' do
  platform(*PLATFORMS.first)
  default_attributes['causeway']['site'] = 'lab'
  default_attributes['causeway']['address'] = '10.200.0.11'
  default_attributes['causeway']['fqdn'] = 'titan-01.lab.test'
  default_attributes['software']['amazon-efs-utils']['version'] = '2.4.0'
  default_attributes['storage']['disks'] = [
    { 'device' => '/dev/sda', 'use' => 'system' }, { 'device' => '/dev/sdb', 'use' => 'scratch' },
  ]
  default_attributes['storage']['sites']['lab']['mounts'] = [
    { 'path' => '/home', 'kind' => 'nfs', 'server' => 'storage-a.lab.test', 'export' => '/srv/home' },
    { 'path' => '/data', 'kind' => 's3', 'bucket' => 'data', 'region' => 'us-west-2', 'read_only' => true },
    { 'path' => '/results', 'kind' => 'efs', 'file_system' => nil, 'region' => 'us-west-2' },
  ]

  let(:old) { [] }

  before do
    allow(Causeway::MountUnits).to receive(:ours).and_return(old)
    stub_command(%r{\Amountpoint --quiet /scratch && test ! -e }).and_return(true)
  end

  on_each_platform do
    it 'has the programs for its mounts' do
      expect(chef_run).to install_apt_package('nfs-common')
      expect(chef_run).to install_storage_package('mount-s3')
      name, release = chef_runner.options.values_at(:platform, :version)
      expect(chef_run).to create_base_apt_source('amazon-efs-utils').with(
        uri: "https://amazon-efs-utils.aws.com/repo/deb/#{name}/#{release}", suites: [release], components: ['main'],
        key_url: 'https://amazon-efs-utils.aws.com/efs-utils.gpg', pin_version: '2.4.0-*'
      )
      expect(chef_run).to upgrade_apt_package('amazon-efs-utils')
    end

    it 'mounts what is there, on demand' do
      expect(chef_run).to create_storage_mount('/home').with(what: 'storage-a.lab.test:/srv/home', type: 'nfs4')
      expect(chef_run).to create_storage_mount('/data').with(what: 's3://data/', type: 'mount-s3')
    end
  end

  it 'runs nothing of a shared file system as its owner' do
    %w(/home /data).each do |path|
      expect(chef_run.storage_mount(path).options.join(',')).to include('nosuid,nodev')
    end
  end

  it "shows S3 the machine's credentials, by reference" do
    expect(chef_run.storage_mount('/data').environment)
      .to eq('AWS_SHARED_CREDENTIALS_FILE' => '/etc/causeway/secrets/aws-credentials')
    expect(chef_run.storage_mount('/home').environment).to eq({})
  end

  it 'waits for a file system that is not there' do
    expect(chef_run).not_to create_storage_mount('/results')
    expect(chef_run).to write_log('mounts that wait for their file systems')
  end

  it 'has scratch space on the disks that are for it' do
    expect(chef_run).to create_storage_disk('scratch').with(path: '/scratch', mode: '1777', devices: ['/dev/sdb'])
  end

  it 'says at each boot whether scratch space is mounted' do
    expect(chef_run).to create_systemd_unit('causeway-scratch.service')
    expect(chef_run).to enable_systemd_unit('causeway-scratch.service')
    expect(chef_run.storage_disk('scratch').ignore_failure).to be(false)
  end

  context 'that is a node already' do
    before do
      allow(File).to receive(:exist?).and_call_original
      allow(File).to receive(:exist?).with('/etc/kubernetes/kubelet.conf').and_return(true)
    end

    it 'goes on when a disk has died' do
      expect(chef_run.storage_disk('scratch').ignore_failure).to be(true)
    end
  end

  context 'with mounts that were removed' do
    let(:old) { %w(/home /old) }

    it 'takes them away, and no others' do
      expect(chef_run).to remove_storage_mount('/old')
      expect(chef_run).not_to remove_storage_mount('/home')
    end
  end

  context 'on a cloud machine' do
    override_attributes['causeway']['address'] = nil

    before do
      chef_runner.node.override['storage']['disks'] = []
      allow(File).to receive(:exist?).and_call_original
      allow(File).to receive(:exist?).with('/etc/kubernetes/kubelet.conf').and_return(joined)
      allow(Causeway::Disks).to receive(:tree).and_return([])
      allow(Causeway::Disks).to receive(:blank).and_return(['/dev/nvme1n1'])
    end

    context 'that has not joined' do
      let(:joined) { false }

      it 'takes blank disks for scratch space' do
        expect(chef_run).to create_storage_disk('scratch').with(devices: ['/dev/nvme1n1'])
      end
    end

    context 'that is a node' do
      let(:joined) { true }

      it "leaves a pod's volume alone" do
        expect(chef_run).to create_storage_disk('scratch').with(devices: [])
      end
    end
  end

  context 'while baking' do
    override_attributes['causeway']['baking'] = true

    it 'brings programs, and mounts nothing' do
      expect(chef_run).to install_apt_package('nfs-common')
      expect(chef_run).to install_storage_package('mount-s3')
      expect(chef_run).not_to create_storage_mount('/home')
      expect(chef_run).not_to create_storage_disk('scratch')
    end
  end

  context 'at a site without mounts' do
    override_attributes['causeway']['site'] = 'elsewhere'

    it 'needs no programs' do
      expect(chef_run).not_to install_apt_package('nfs-common')
      expect(chef_run).not_to install_storage_package('mount-s3')
    end
  end
end
