# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes::upgrade' do
  platform(*PLATFORMS.first)
  default_attributes['causeway']['name'] = 'titan-01'

  before do
    allow(File).to receive(:exist?).and_call_original
    allow(File).to receive(:exist?).with('/etc/kubernetes/kubelet.conf').and_return(true)
    allow(File).to receive(:exist?).with('/etc/kubernetes/admin.conf').and_return(master)
  end

  context 'on a worker' do
    let(:master) { false }

    it 'drains with credentials that were brought for it' do
      expect(chef_run).to upgrade_kubernetes_upgrade('titan-01')
        .with(kubeconfig: '/etc/causeway/secrets/kubernetes-upgrade.conf')
    end
  end

  context 'on a master' do
    let(:master) { true }

    it "has the administrator's" do
      expect(chef_run).to upgrade_kubernetes_upgrade('titan-01').with(kubeconfig: '/etc/kubernetes/admin.conf')
    end
  end
end
