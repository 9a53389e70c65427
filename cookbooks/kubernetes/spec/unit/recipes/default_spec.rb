# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes::default' do
  platform(*PLATFORMS.first)
  default_attributes['causeway']['api'] = 'api.research.internal:6443'
  default_attributes['causeway']['pods'] = '10.96.0.0/11'
  default_attributes['causeway']['services'] = '10.90.0.0/16'
  default_attributes['kubernetes']['version'] = '1.36'
  override_attributes['kubernetes']['labels'] = { 'gpu-class' => 'old' }
  override_attributes['kubernetes']['taints'] = ['nvidia.com/gpu=true:NoSchedule']

  let(:config) { '/etc/kubernetes/kubelet.conf.d/50-causeway.conf' }
  let(:joined) { false }
  let(:installed) { '1.36.2-1.1' }

  before do
    allow(File).to receive(:exist?).and_call_original
    allow(File).to receive(:exist?).with('/etc/kubernetes/kubelet.conf').and_return(joined)
    allow(Causeway::Packages).to receive(:installed).and_return(installed)
  end

  on_each_platform do
    it 'takes packages of the minor alone' do
      expect(chef_run).to create_base_apt_source('kubernetes').with(
        uri: 'https://pkgs.k8s.io/core:/stable:/v1.36/deb/', pin_version: '1.36.*'
      )
      %w(kubelet kubeadm kubectl).each { |name| expect(chef_run).to install_kubernetes_package(name) }
    end

    it "writes the node's own configuration" do
      expect(chef_run).to render_file(config).with_content('maxPods: 110')
      expect(chef_run).to render_file(config).with_content('effect: NoSchedule')
      expect(chef_run).to render_file('/etc/default/kubelet')
        .with_content('"--config-dir=/etc/kubernetes/kubelet.conf.d --node-labels=gpu-class=old"')
    end

    it 'keeps pods from machines and the metadata service before the kubelet starts any' do
      expect(chef_run).to render_file('/etc/causeway/pods.nft').with_content('udp dport { 2049, 8472 }')
      expect(chef_run).to render_file('/etc/causeway/pods.nft').with_content('ip daddr 169.254.169.254')
      expect(chef_run).to enable_systemd_unit('causeway-pods.service')
      expect(chef_run).to start_systemd_unit('causeway-pods.service, now')
      expect(chef_run).to render_file('/etc/systemd/system/kubelet.service.d/20-causeway.conf')
        .with_content('Requires=causeway-pods.service')
    end

    it 'loads changed rules without a restart, which would be one of the kubelet' do
      expect(chef_run.template('/etc/causeway/pods.nft'))
        .to notify('systemd_unit[causeway-pods.service, now]').to(:reload).delayed
    end

    it 'has no network for pods at boot until flannel has written its configuration' do
      expect(chef_run).to render_file('/etc/tmpfiles.d/causeway-cni.conf')
        .with_content("r! /etc/cni/net.d/10-flannel.conflist\n")
    end

    it 'turns swap off' do
      expect(chef_run).to off_kubernetes_swap('off')
    end
  end

  it 'names every signal of eviction: the kubelet has no default beside one' do
    expect(chef_run).to(render_file(config).with_content do |text|
      expect(YAML.safe_load(text)['evictionHard'].keys).to contain_exactly(
        'memory.available', 'nodefs.available', 'nodefs.inodesFree', 'imagefs.available', 'imagefs.inodesFree'
      )
    end)
  end

  it 'restarts the kubelet when its configuration or its flags change, and sees that it is well' do
    expect(chef_run.file(config)).to notify('service[kubelet]').to(:restart).delayed
    expect(chef_run.template('/etc/default/kubelet')).to notify('service[kubelet]').to(:restart).delayed
    expect(chef_run.service('kubelet')).to notify('http_request[the kubelet is well]').to(:get).delayed
  end

  it 'has the kubelet wait for what kubeadm writes' do
    unit = '/etc/systemd/system/kubelet.service.d/20-causeway.conf'
    expect(chef_run).to render_file(unit).with_content('ConditionPathExists=/var/lib/kubelet/config.yaml')
    expect(chef_run.cookbook_file(unit)).to notify('execute[systemctl daemon-reload for the kubelet]').immediately
    expect(chef_run).to enable_service('kubelet')
    expect(chef_run).not_to start_service('kubelet')
  end

  it 'lets the kubelet hold up a shutdown' do
    file = '/etc/systemd/logind.conf.d/zz-kubelet.conf'
    expect(chef_run).to render_file(file).with_content('InhibitDelayMaxSec=')
    expect(chef_run.cookbook_file(file)).to notify('execute[logind reads its configuration]').to(:run).immediately
    # A restart would lose sessions, and the unit has no reload.
    expect(chef_run.execute('logind reads its configuration').command).to include('--signal=HUP')
  end

  context 'with a patch release' do
    override_attributes['kubernetes']['package_version'] = '1.36.2-*'

    it 'takes no other' do
      expect(chef_run).to create_base_apt_source('kubernetes').with(pin_version: '1.36.2-*')
    end
  end

  context 'on a node' do
    let(:joined) { true }

    it 'runs the kubelet' do
      expect(chef_run).to start_service('kubelet')
    end
  end

  context 'with an older minor installed' do
    let(:installed) { '1.35.4-1.1' }

    it 'says so, and upgrades nothing' do
      expect(chef_run).to write_log('another version of Kubernetes is installed').with(level: :warn)
      expect(chef_run).not_to upgrade_kubernetes_package('kubelet')
    end
  end

  context 'with a label that no kubelet may set' do
    override_attributes['kubernetes']['labels'] = { 'node-role.kubernetes.io/worker' => '' }

    it 'says so' do
      expect { chef_run }.to raise_error(ArgumentError, /node-role/)
    end
  end
end
