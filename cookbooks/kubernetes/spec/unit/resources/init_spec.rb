# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes_init' do
  platform(*PLATFORMS.first)
  step_into :kubernetes_init

  let(:config) { '/run/causeway/kubeadm.yaml' }
  let(:begun) { false }
  let(:answers) { false }

  before do
    allow(File).to receive(:exist?).and_call_original
    allow(File).to receive(:exist?).with('/etc/kubernetes/admin.conf').and_return(begun)
    allow(File).to receive(:exist?).with('/etc/kubernetes/kubeadm-unfinished').and_return(false)
    allow(Causeway::Kubeadm).to receive(:answers?).with('api.test:6443').and_return(answers)
    stubs_for_provider('kubernetes_init[master-1]') do |provider|
      allow(provider).to receive_shell_out('kubeadm', 'version', '--output', 'short', stdout: "v1.36.2\n")
    end
  end

  recipe do
    kubernetes_init 'master-1' do
      endpoint 'api.test:6443'
      config [{ 'kind' => 'InitConfiguration' }, { 'kind' => 'ClusterConfiguration' }]
    end
  end

  it 'begins the cluster, and prints nothing that opens it' do
    expect(chef_run).to run_execute('kubeadm init').with(
      command: ['kubeadm', 'init', '--config', config, '--skip-token-print']
    )
    expect(chef_run).to create_file('/etc/kubernetes/kubeadm-unfinished')
    expect(chef_run).to delete_file('/etc/kubernetes/kubeadm-unfinished')
  end

  context 'with a cluster that answers' do
    let(:answers) { true }

    it 'begins no second one' do
      expect { chef_run }.to raise_error(RuntimeError, /A cluster answers at api.test:6443/)
    end
  end

  context 'on a master' do
    let(:begun) { true }

    it { is_expected.not_to run_execute('kubeadm init') }
  end
end
