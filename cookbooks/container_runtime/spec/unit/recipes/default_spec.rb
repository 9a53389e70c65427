# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'container_runtime::default' do
  platform(*PLATFORMS.first)
  step_into :container_runtime_config, :container_runtime_mirror

  let(:containerd) { 'v2.1.4' }
  let(:config) { '/etc/containerd/config.toml' }

  before do
    stub_command('systemd-detect-virt --container --quiet').and_return(false)
    allow(Causeway::Containerd).to receive(:installed)
      .and_return(Causeway::Containerd.version_in("containerd github.com/containerd/containerd #{containerd} 1\n"))
  end

  on_each_platform do
    context 'with a version' do
      override_attributes['container_runtime']['version'] = '2.1.4'
      override_attributes['kubernetes']['version'] = '1.36'

      it 'takes it from the pinned archive' do
        expect(chef_run).to create_base_apt_source('containerd').with(
          uri: "https://download.docker.com/linux/#{chef_run.node['platform']}",
          suites: [chef_run.node['lsb']['codename']],
          pin_version: '2.1.4-*'
        )
        expect(chef_run).to upgrade_apt_package('containerd.io')
        expect(chef_run.apt_package('containerd.io')).to notify('service[containerd]').to(:restart).delayed
      end

      it 'writes version 3' do
        expect(chef_run).to render_file(config).with_content('version = 3')
        expect(chef_run).to render_file(config).with_content('pause:3.10.2')
        expect(chef_run).to render_file(config).with_content('bin_dirs = ["/opt/cni/bin"]')
        expect(chef_run).not_to write_log('containerd is too old for the kubelet')
      end
    end

    context "with the distribution's" do
      let(:containerd) { '1.6.20~ds1' }

      it 'has no archive of others' do
        expect(chef_run).to remove_base_apt_source('containerd')
        expect(chef_run).to install_apt_package('containerd')
      end

      it 'writes version 2, with the systemd cgroup driver' do
        expect(chef_run).to render_file(config).with_content('version = 2')
        expect(chef_run).to render_file(config).with_content('SystemdCgroup = true')
      end

      it 'leaves out what that version does not know, and NVIDIA' do
        expect(chef_run).not_to render_file(config).with_content('enable_cdi')
        expect(chef_run).not_to render_file(config).with_content('nvidia')
      end
    end
  end

  it 'reads its configuration again when it changes' do
    expect(chef_run.container_runtime_config(config)).to notify('service[containerd]').to(:restart).delayed
    expect(chef_run).to start_service('containerd')
    expect(chef_run).to enable_service('containerd')
  end

  it 'has the kernel route pods' do
    expect(chef_run).to load_kernel_module('br_netfilter')
    expect(chef_run).to apply_sysctl('net.ipv4.ip_forward').with(value: '1')
    expect(chef_run).to render_file('/etc/modules-load.d/kubernetes.conf').with_content("overlay\nbr_netfilter\n")
  end

  it 'limits no locked memory, and has crictl know where to ask' do
    limits = '/etc/systemd/system/containerd.service.d/limits.conf'
    expect(chef_run).to render_file(limits).with_content('LimitMEMLOCK=infinity')
    expect(chef_run.cookbook_file(limits)).to notify('execute[systemctl daemon-reload for containerd]').to(:run)
    expect(chef_run).to render_file('/etc/crictl.yaml').with_content('containerd.sock')
  end

  context 'in a container' do
    before { stub_command('systemd-detect-virt --container --quiet').and_return(true) }

    it "leaves the host's kernel alone" do
      expect(chef_run).not_to load_kernel_module('overlay')
      expect(chef_run).not_to apply_sysctl('net.ipv4.ip_forward')
    end
  end

  context 'with a containerd that the kubelet has outlived' do
    override_attributes['kubernetes']['version'] = '1.36'
    let(:containerd) { 'v1.7.28' }

    it 'says so' do
      expect(chef_run).to write_log('containerd is too old for the kubelet').with(level: :warn)
    end

    it 'still speaks CDI' do
      expect(chef_run).to render_file(config).with_content('enable_cdi = true')
    end
  end

  context 'with GPUs' do
    override_attributes['gpu']['driver'] = 580

    it 'runs every pod by the NVIDIA runtime' do
      expect(chef_run).to render_file(config).with_content('default_runtime_name = "nvidia"')
      expect(chef_run).to render_file(config).with_content('BinaryName = "/usr/bin/nvidia-container-runtime"')
    end

    context 'that must not be used' do
      override_attributes['container_runtime']['nvidia']['enabled'] = false

      it 'runs them by runc' do
        expect(chef_run).to render_file(config).with_content('default_runtime_name = "runc"')
      end
    end
  end

  context 'with mirrors' do
    override_attributes['container_runtime']['registry_mirrors'] = {
      'docker.io' => ['https://mirror.test'], 'ghcr.io' => [],
    }
    override_attributes['container_runtime']['registry_ca'] = '/etc/ssl/certs/mirror.pem'

    let(:hosts) { '/etc/containerd/certs.d/docker.io/hosts.toml' }

    it 'asks them first, the registry last' do
      expect(chef_run).to render_file(hosts).with_content('server = "https://registry-1.docker.io"')
      expect(chef_run).to render_file(hosts).with_content('[host."https://mirror.test"]')
      expect(chef_run).to render_file(hosts).with_content('ca = "/etc/ssl/certs/mirror.pem"')
    end

    it 'takes away what is empty' do
      expect(chef_run).to remove_container_runtime_mirror('ghcr.io')
      expect(chef_run).to delete_file('/etc/containerd/certs.d/ghcr.io/hosts.toml')
    end
  end
end
