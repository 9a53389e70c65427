# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes::worker' do
  platform(*PLATFORMS.first)
  default_attributes['causeway']['name'] = 'titan-01'
  default_attributes['causeway']['api'] = 'api.research.internal:6443'

  let(:joined) { false }
  let(:secret) { '/etc/causeway/secrets/kubernetes-join.yaml' }

  before do
    allow(File).to receive(:exist?).and_call_original
    allow(File).to receive(:exist?).with('/var/lib/kubelet/pki/kubelet-client-current.pem').and_return(joined)
    allow(File).to receive(:exist?).with(secret).and_return(brought)
  end

  context 'with the secret' do
    let(:brought) { true }

    on_each_platform do
      it { is_expected.to join_kubernetes_join('titan-01') }
    end

    it 'joins' do
      expect(chef_run).to join_kubernetes_join('titan-01')
        .with(endpoint: 'api.research.internal:6443', secrets: secret, master: false)
    end
  end

  context 'where no cluster is' do
    let(:brought) { true }
    default_attributes['causeway']['api'] = nil

    it 'says so and goes on' do
      expect(chef_run).not_to join_kubernetes_join('titan-01')
      expect(chef_run).to write_log('no cluster to join')
    end
  end

  context 'on a node' do
    let(:brought) { false }
    let(:joined) { true }
    default_attributes['kubernetes']['labels'] = { 'gpu-class' => 'old' }
    default_attributes['kubernetes']['taints'] = ['gpu=true:NoSchedule']

    it 'keeps its labels' do
      expect(chef_run).to reconcile_kubernetes_labels('titan-01')
        .with(labels: { 'gpu-class' => 'old' }, taints: ['gpu=true:NoSchedule'])
      expect(chef_run).not_to write_log('the secret to join the cluster is not here yet')
    end
  end

  context 'without it' do
    let(:brought) { false }

    it 'says so and goes on' do
      expect(chef_run).not_to join_kubernetes_join('titan-01')
      expect(chef_run).not_to reconcile_kubernetes_labels('titan-01')
      expect(chef_run).to write_log('the secret to join the cluster is not here yet')
    end
  end

  context 'in the cloud' do
    let(:brought) { false }
    default_attributes['kubernetes']['join']['parameter'] = '/causeway/research/node/kubernetes-join'
    default_attributes['kubernetes']['join']['region'] = 'us-west-2'

    before { allow(Causeway::Instance).to receive(:facts).and_return('id' => 'i-0', 'zone' => 'us-west-2b') }

    it 'fetches the secret by itself' do
      expect(chef_run).to fetch_kubernetes_secret(secret)
      expect(chef_run).to install_package('python3-boto3')
    end

    %w(access-gateway ssh-node).each do |role|
      context "as #{role}" do
        default_attributes['causeway']['role'] = role

        it 'waits for somebody to bring it' do
          expect(chef_run).not_to fetch_kubernetes_secret(secret)
          expect(chef_run).to write_log('the secret to join the cluster is not here yet')
        end
      end
    end

    context 'on a node' do
      let(:joined) { true }

      it 'has no more need of it' do
        expect(chef_run).not_to fetch_kubernetes_secret(secret)
        expect(chef_run).to forget_kubernetes_secret("#{secret}, not needed any more")
      end
    end
  end

  context 'while baking' do
    let(:brought) { true }
    override_attributes['causeway']['baking'] = true

    it 'does not join' do
      expect(chef_run).not_to join_kubernetes_join('titan-01')
    end
  end
end
