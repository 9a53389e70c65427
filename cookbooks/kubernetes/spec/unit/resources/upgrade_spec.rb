# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes_upgrade' do
  platform(*PLATFORMS.first)
  step_into :kubernetes_upgrade

  let(:state) { '/var/lib/causeway/kubernetes-upgrade' }
  let(:manifest) { '/etc/kubernetes/manifests/kube-apiserver.yaml' }
  let(:cluster) { instance_double(Causeway::Cluster, version: there, masters: masters, cordoned?: false) }
  let(:turn) { instance_double(Causeway::Turn, take: true, give_back: nil) }
  let(:kubectl) { %w(kubectl --kubeconfig /upgrade.conf) }
  let(:master) { false }
  let(:there) { 'v1.36.2' }
  let(:masters) { { 'master-1' => 'v1.36.2', 'master-2' => 'v1.36.2' } }
  let(:installed) { '1.35.4-1.1' }
  let(:candidate) { '1.36.2-1.1' }
  let(:kubeadm) { 'v1.36.2' }

  before do
    allow(File).to receive(:exist?).and_call_original
    allow(File).to receive(:exist?).with('/upgrade.conf').and_return(true)
    allow(File).to receive(:exist?).with(state).and_return(false)
    allow(File).to receive(:exist?).with(manifest).and_return(master)
    allow(File).to receive(:read).and_call_original
    allow(File).to receive(:read).with(state).and_return("schedulable\n")
    allow(Causeway::Packages).to receive(:installed).and_return(installed)
    allow(Causeway::Packages).to receive(:candidate).and_return(candidate)
    allow(Causeway::Cluster).to receive(:new).with('/upgrade.conf').and_return(cluster)
    allow(Causeway::Turn).to receive(:new).and_return(turn)
    stubs_for_provider('kubernetes_upgrade[titan-01]') do |provider|
      allow(provider).to receive_shell_out('kubeadm', 'version', '--output', 'short', stdout: "#{kubeadm}\n")
    end
  end

  recipe do
    kubernetes_upgrade 'titan-01' do
      kubeconfig '/upgrade.conf'
    end
  end

  it "goes up in kubeadm's order" do
    names = chef_run.resource_collection.all_resources.map(&:name)
    steps = [
      'kubeadm', 'kubeadm upgrade', 'drain titan-01', 'kubelet', 'kubectl', 'wait until the new kubelet reports',
      'wait until it is ready', 'uncordon titan-01',
    ]
    expect((names & steps)).to eq(steps)
    %w(kubeadm kubelet kubectl).each { |name| expect(chef_run).to upgrade_kubernetes_package(name) }
    expect(chef_run).to run_execute('kubeadm upgrade').with(command: %w(kubeadm upgrade node))
    expect(chef_run.execute('drain titan-01').command).to start_with(*kubectl, 'drain', 'titan-01')
    expect(chef_run).to restart_service('kubelet')
    expect(chef_run).to run_execute('uncordon titan-01').with(command: kubectl + %w(uncordon titan-01))
    expect(turn).to have_received(:give_back)
  end

  it "waits for the new kubelet's status: the old one's stays for a while" do
    allow(Causeway::Packages).to receive(:installed).with('kubelet').and_return(installed, candidate)
    expect(chef_run.execute('wait until the new kubelet reports').command)
      .to include('--for=jsonpath={.status.nodeInfo.kubeletVersion}=v1.36.2', 'node/titan-01')
    expect(chef_run.execute('wait until it is ready').command).to include('--for=condition=Ready')
  end

  context 'that is at the version' do
    let(:installed) { '1.36.2-1.1' }

    it 'does nothing' do
      expect(chef_run).not_to run_execute('drain titan-01')
      expect(turn).not_to have_received(:take)
    end
  end

  context 'before the masters' do
    let(:there) { 'v1.35.4' }
    let(:masters) { { 'master-1' => 'v1.35.4' } }

    it 'waits' do
      expect { chef_run }.to raise_error(RuntimeError, /Masters go first: master-1 is at v1.35.4/)
    end
  end

  context 'with one master that has not gone up' do
    let(:masters) { { 'master-1' => 'v1.36.2', 'master-2' => 'v1.35.4' } }

    it 'waits: its API server may be the one that the kubelet asks' do
      expect { chef_run }.to raise_error(RuntimeError, /Masters go first: master-2 is at v1.35.4/)
      expect(turn).not_to have_received(:take)
    end
  end

  context 'that would go down' do
    let(:installed) { '1.37.0-1.1' }

    it 'refuses' do
      expect { chef_run }.to raise_error(RuntimeError, /no way back/)
    end
  end

  context 'by two minors' do
    let(:there) { 'v1.34.1' }

    it 'refuses' do
      expect { chef_run }.to raise_error(RuntimeError, /a minor at a time/)
    end
  end

  context 'of the first master' do
    let(:master) { true }
    let(:there) { 'v1.35.4' }

    it 'brings the cluster up' do
      checks = '--ignore-preflight-errors=CoreDNSUnsupportedPlugins,CoreDNSMigration'
      command = %w(kubeadm upgrade apply v1.36.2 --yes) + [checks]
      expect(chef_run).to run_execute('kubeadm upgrade').with(command: command)
    end
  end

  context 'of a further master' do
    let(:master) { true }

    it 'follows' do
      expect(chef_run).to run_execute('kubeadm upgrade').with(command: %w(kubeadm upgrade node))
    end
  end

  context 'that people cordoned' do
    before { allow(File).to receive(:read).with(state).and_return("cordoned\n") }

    it 'stays so' do
      expect(chef_run).not_to run_execute('uncordon titan-01')
    end
  end
end
