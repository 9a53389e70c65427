# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes::control_plane' do
  platform(*PLATFORMS.first)
  default_attributes['causeway']['cluster'] = 'research'
  default_attributes['causeway']['api'] = 'api.research.internal:6443'
  default_attributes['causeway']['pods'] = '10.96.0.0/11'
  default_attributes['causeway']['services'] = '10.90.0.0/16'
  default_attributes['causeway']['name'] = 'master-1'

  let(:secret) { '/etc/causeway/secrets/kubernetes-join.yaml' }
  let(:brought) { false }

  before do
    allow(File).to receive(:exist?).and_call_original
    allow(File).to receive(:exist?).with(secret).and_return(brought)
  end

  it 'begins the cluster on the first master' do
    expect(chef_run).to init_kubernetes_init('master-1').with(endpoint: 'api.research.internal:6443')
    expect(chef_run).not_to join_kubernetes_join('master-1')
  end

  on_each_platform do
    it { is_expected.to init_kubernetes_init('master-1') }
  end

  it 'keeps an audit log' do
    expect(chef_run).to create_cookbook_file('/etc/kubernetes/audit-policy.yaml').with(mode: '0600')
  end

  it 'takes tokens of no issuer' do
    expect(chef_run).not_to create_file('/etc/kubernetes/authentication/config.yaml')
  end

  context 'with an issuer' do
    default_attributes['kubernetes']['control_plane']['authentication'] = {
      'kind' => 'AuthenticationConfiguration',
      'jwt' => [{ 'issuer' => { 'url' => 'https://login.lab.example' } }],
    }

    it 'tells the API server' do
      expect(chef_run).to create_file('/etc/kubernetes/authentication/config.yaml').with(
        content: include('url: https://login.lab.example'), mode: '0600'
      )
    end
  end

  context 'when an issuer has left the spec' do
    before do
      allow(File).to receive(:exist?).with('/etc/kubernetes/authentication/config.yaml').and_return(true)
    end

    it 'tells the API server so' do
      expect(chef_run).to create_file('/etc/kubernetes/authentication/config.yaml').with(content: include('jwt: []'))
    end
  end

  context 'on a master that runs' do
    before do
      allow(File).to receive(:exist?).with('/etc/kubernetes/kubelet.conf').and_return(true)
      allow(File).to receive(:exist?).with('/etc/kubernetes/manifests/kube-apiserver.yaml').and_return(true)
    end

    it 'says when its API server has yet to read its files' do
      log = 'log[the API server has yet to read its files]'
      expect(chef_run.cookbook_file('/etc/kubernetes/audit-policy.yaml')).to notify(log).to(:write).delayed
    end

    it 'keeps its labels' do
      expect(chef_run).to reconcile_kubernetes_labels('master-1')
    end
  end

  context 'with an API server that is to encrypt' do
    default_attributes['kubernetes']['control_plane']['cluster'] = {
      'apiServer' => {
        'extraArgs' => [{ 'name' => 'encryption-provider-config', 'value' => '/etc/kubernetes/encryption.yaml' }],
      },
    }

    it 'begins no cluster without the key' do
      expect(chef_run).not_to init_kubernetes_init('master-1')
      expect(chef_run).to write_log('the key that secrets are encrypted with is not here yet')
    end
  end

  context 'on another master' do
    override_attributes['causeway']['name'] = 'master-2'

    it 'waits for the secret' do
      expect(chef_run).not_to init_kubernetes_init('master-2')
      expect(chef_run).to write_log('the secret to join the masters is not here yet')
    end

    context 'with the secret' do
      let(:brought) { true }

      it 'joins' do
        expect(chef_run).to join_kubernetes_join('master-2').with(master: true)
      end
    end
  end

  context 'on a first master that was replaced' do
    let(:brought) { true }

    it 'joins' do
      expect(chef_run).not_to init_kubernetes_init('master-1')
      expect(chef_run).to join_kubernetes_join('master-1')
    end
  end

  context 'while baking' do
    override_attributes['causeway']['baking'] = true

    it 'begins nothing' do
      allow(Causeway::Images).to receive(:all_here?).and_return(true)
      expect(chef_run).not_to init_kubernetes_init('master-1')
    end
  end
end
