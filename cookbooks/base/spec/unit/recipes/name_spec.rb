# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'base::name' do
  context 'at a site' do
    default_attributes['causeway'] = {
      'name' => 'titan-01', 'fqdn' => 'titan-01.lab.internal', 'address' => '10.200.0.11',
    }

    it { is_expected.to set_hostname('titan-01').with(ipaddress: '10.200.0.11') }

    context 'with cloud-init' do
      before do
        allow(File).to receive(:directory?).and_call_original
        allow(File).to receive(:directory?).with('/etc/cloud/cloud.cfg.d').and_return(true)
      end

      it 'keeps it from writing over the name and the hosts' do
        expect(chef_run).to render_file('/etc/cloud/cloud.cfg.d/zz-causeway.cfg')
          .with_content("manage_etc_hosts: false\npreserve_hostname: true\n")
      end
    end

    it 'has one line for the machine, and no 127.0.1.1' do
      expect(chef_run).to render_file('/etc/hosts').with_content(/^10\.200\.0\.11 titan-01\.lab\.internal titan-01/)
      expect(chef_run).not_to render_file('/etc/hosts').with_content(/^127\.0\.1\.1/)
    end
  end

  context 'in a region, where the network names machines' do
    default_attributes['causeway'] = { 'hostname' => 'login-1' }

    it { is_expected.not_to create_template('/etc/hosts') }
    it { is_expected.not_to create_file('/etc/cloud/cloud.cfg.d/zz-causeway.cfg') }
    it { is_expected.not_to set_hostname('login-1') }
  end
end
