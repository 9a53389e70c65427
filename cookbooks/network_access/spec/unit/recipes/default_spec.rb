# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'network_access::default' do
  default_attributes['causeway']['site'] = 'rack-a'

  before do
    folder = '/var/lib/causeway/chef/trees/openvpn'
    allow(File).to receive(:directory?).and_call_original
    allow(File).to receive(:directory?).with(folder).and_return(true)
    allow(File).to receive(:directory?).with("#{folder}/etc/openvpn/server").and_return(true)
    allow(Dir).to receive(:children).and_call_original
    allow(Dir).to receive(:children).with("#{folder}/etc/openvpn/server").and_return(%w(udp.conf tcp.conf ca.crt))
    allow(File).to receive(:exist?).and_call_original
    allow(File).to receive(:exist?).with(%r{^/etc/openvpn/server/}).and_return(ready)
    allow(File).to receive(:exist?).with("#{folder}/etc/wireguard/wg-laptops.conf").and_return(wireguard)
    allow(File).to receive(:exist?).with('/etc/wireguard/wg-laptops.key').and_return(ready)
    allow(File).to receive(:exist?).with('/etc/remote-access/peers.json').and_return(ready)
  end

  let(:wireguard) { false }

  context 'with a certificate' do
    let(:ready) { true }

    it { is_expected.to install_package(include('openvpn', 'dnsmasq-base', 'nftables')) }
    it { is_expected.to install_base_tree('openvpn-rack-a').with(reload: %w(/usr/local/sbin/remote-access reload)) }
    it { is_expected.to enable_service('openvpn-server@udp') }
    it { is_expected.to start_service('openvpn-server@tcp') }
    it { is_expected.not_to start_service('wg-quick@wg-laptops') }
    it { is_expected.not_to write_log('a VPN server without its certificate') }

    context 'and WireGuard' do
      let(:wireguard) { true }

      it { is_expected.to start_service('wg-quick@wg-laptops') }
      it { is_expected.to start_service('openvpn-server@udp') }
    end
  end

  context 'without one' do
    let(:ready) { false }

    it { is_expected.to install_base_tree('openvpn-rack-a').with(reload: []) }
    it { is_expected.not_to start_service('openvpn-server@udp') }
    it { is_expected.to write_log('a VPN server without its certificate') }
  end
end
