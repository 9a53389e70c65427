# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes_labels' do
  platform(*PLATFORMS.first)
  step_into :kubernetes_labels

  let(:state) { '/var/lib/causeway/kubernetes-labels' }
  let(:cluster) { instance_double(Causeway::Cluster, own_node: found, label: '') }
  let(:found) { { 'metadata' => { 'labels' => labels }, 'spec' => { 'taints' => taints } } }
  let(:labels) { { 'gpu-class' => 'old', 'kubernetes.io/os' => 'linux', 'nvidia.com/gpu.count' => '4' } }
  let(:taints) { [{ 'key' => 'nvidia.com/gpu', 'value' => 'true', 'effect' => 'NoSchedule' }] }
  let(:given) { nil }

  before do
    allow(Causeway::Cluster).to receive(:new).with('/etc/kubernetes/kubelet.conf').and_return(cluster)
    allow(File).to receive(:exist?).and_call_original
    allow(File).to receive(:exist?).with(state).and_return(!given.nil?)
    allow(File).to receive(:readlines).and_call_original
    allow(File).to receive(:readlines).with(state, chomp: true).and_return(given)
  end

  recipe do
    kubernetes_labels 'titan-01' do
      labels 'gpu-class' => 'old'
      taints ['nvidia.com/gpu=true:NoSchedule']
    end
  end

  it 'changes nothing where all is as it should be' do
    chef_run
    expect(cluster).not_to have_received(:label)
    expect(chef_run).not_to write_log('taints of titan-01')
  end

  context 'with another value' do
    let(:labels) { { 'gpu-class' => 'new' } }

    it 'gives the one that is wanted' do
      chef_run
      expect(cluster).to have_received(:label).with('titan-01', { 'gpu-class' => 'old' })
      expect(chef_run).to create_file(state).with(content: "gpu-class\n")
    end
  end

  context 'with a label that was given before' do
    let(:given) { %w(gpu-class nvidia.com/gpu.count forgotten) }

    it 'takes it away, if it is there' do
      chef_run
      expect(cluster).to have_received(:label).with('titan-01', { 'nvidia.com/gpu.count' => nil })
    end
  end

  context 'without the taint' do
    let(:taints) { nil }

    it 'reports what it may not change' do
      expect(chef_run).to write_log('taints of titan-01')
        .with(level: :warn, message: %r{titan-01 lacks nvidia.com/gpu=true:NoSchedule})
    end
  end

  context 'with an API that is away' do
    before { allow(cluster).to receive(:own_node).and_raise(Causeway::Cluster::Failed, 'connection refused') }

    it 'says so, and remembers nothing' do
      expect(chef_run).to write_log('labels of titan-01').with(level: :warn, message: /connection refused/)
      expect(chef_run).not_to create_file(state)
    end
  end
end
