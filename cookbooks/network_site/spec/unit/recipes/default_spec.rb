# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'network_site::default' do
  default_attributes['causeway']['site'] = 'rack-a'

  before do
    allow(File).to receive(:directory?).and_call_original
    allow(File).to receive(:directory?).with('/var/lib/causeway/chef/trees/strongswan').and_return(tree)
  end

  context 'with the tree' do
    let(:tree) { true }

    it { is_expected.to install_package(include('strongswan-swanctl', 'frr', 'frr-pythontools')) }
    it { is_expected.to enable_service('site-gateway-revive.timer') }
    it { is_expected.to start_service('strongswan.service') }

    it 'brings the tree that vpn.push brings' do
      reload = %w(/usr/local/sbin/site-tunnel reload --confirm 3600)
      is_expected.to install_base_tree('strongswan-rack-a').with(reload: reload)
    end
  end

  context 'without the tree' do
    let(:tree) { false }

    it { is_expected.to write_log('a gateway without its tree') }
    it { is_expected.to disable_service('strongswan.service') }
    it { is_expected.not_to install_base_tree('strongswan-rack-a') }
  end

  context 'while an image is made' do
    let(:tree) { true }
    default_attributes['causeway']['baking'] = true

    it { is_expected.not_to install_base_tree('strongswan-rack-a') }
  end
end
