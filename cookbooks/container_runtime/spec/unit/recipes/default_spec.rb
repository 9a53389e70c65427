# frozen_string_literal: true

require 'chefspec'

describe 'container_runtime::default' do
  platform 'ubuntu', '24.04'
  step_into :container_runtime_config, :container_runtime_mirror

  before do
    stub_command('systemd-detect-virt --container --quiet').and_return(false)
    allow(Mixlib::ShellOut).to receive(:new).with('containerd', '--version').and_return(
      double(run_command: double(stdout: "containerd github.com/containerd/containerd #{containerd} 1\n"))
    )
  end

  let(:containerd) { 'v2.1.4' }

  context 'with a version' do
    override_attributes['container_runtime']['version'] = '2.1.4'
    override_attributes['kubernetes']['version'] = '1.36'

    it 'takes it from the pinned archive' do
      expect(chef_run).to create_base_apt_source('containerd').with(pin_version: '2.1.4-*')
      expect(chef_run).to upgrade_apt_package('containerd.io')
    end

    it 'writes version 3' do
      expect(chef_run).to render_file('/etc/containerd/config.toml').with_content('version = 3')
      expect(chef_run).to render_file('/etc/containerd/config.toml').with_content('pause:3.10.2')
    end
  end

  context "with the distribution's" do
    let(:containerd) { '1.6.20~ds1' }

    it 'writes version 2, with the systemd cgroup driver' do
      expect(chef_run).to install_apt_package('containerd')
      expect(chef_run).to render_file('/etc/containerd/config.toml').with_content('version = 2')
      expect(chef_run).to render_file('/etc/containerd/config.toml').with_content('SystemdCgroup = true')
    end

    it 'leaves NVIDIA out' do
      expect(chef_run).not_to render_file('/etc/containerd/config.toml').with_content('nvidia')
    end
  end

  context 'with cards' do
    override_attributes['gpu']['driver'] = 580

    it 'runs every pod by the NVIDIA runtime' do
      expect(chef_run).to render_file('/etc/containerd/config.toml')
        .with_content('default_runtime_name = "nvidia"')
    end
  end

  context 'with mirrors' do
    override_attributes['container_runtime']['registry_mirrors'] = { 'docker.io' => ['https://mirror.test'] }

    it 'asks them first' do
      expect(chef_run).to render_file('/etc/containerd/certs.d/docker.io/hosts.toml')
        .with_content('[host."https://mirror.test"]')
    end
  end
end
