# frozen_string_literal: true

require 'chefspec'

describe 'kubernetes::default' do
  platform 'ubuntu', '24.04'
  default_attributes['kubernetes']['version'] = '1.36'
  override_attributes['kubernetes']['labels'] = { 'gpu-class' => 'old' }
  override_attributes['kubernetes']['taints'] = ['nvidia.com/gpu=true:NoSchedule']

  it 'takes packages of the minor alone' do
    expect(chef_run).to create_base_apt_source('kubernetes').with(
      uri: 'https://pkgs.k8s.io/core:/stable:/v1.36/deb/', pin_version: '1.36.*'
    )
    %w(kubelet kubeadm kubectl).each { |name| expect(chef_run).to install_kubernetes_package(name) }
  end

  it "writes the node's own configuration" do
    config = '/etc/kubernetes/kubelet.conf.d/50-causeway.conf'
    expect(chef_run).to render_file(config).with_content('maxPods: 110')
    expect(chef_run).to render_file(config).with_content('effect: NoSchedule')
    expect(chef_run).to render_file('/etc/default/kubelet').with_content('--node-labels=gpu-class=old')
    expect(chef_run.file(config)).to notify('service[kubelet]').to(:restart).delayed
  end

  it 'turns swap off' do
    expect(chef_run).to off_kubernetes_swap('off')
  end

  context 'with a label that no kubelet may set' do
    override_attributes['kubernetes']['labels'] = { 'node-role.kubernetes.io/worker' => '' }

    it 'says so' do
      expect { chef_run }.to raise_error(ArgumentError, /node-role/)
    end
  end
end
