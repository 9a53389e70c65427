# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'base::time' do
  before { stub_command('systemd-detect-virt --quiet --container').and_return(false) }

  it { is_expected.to install_package('chrony') }
  it { is_expected.to enable_service('chrony') }
  it { is_expected.to render_file('/etc/chrony/chrony.conf').with_content(/^pool /) }

  context 'on AWS' do
    automatic_attributes['ec2'] = { 'instance_id' => 'i-0' }
    default_attributes['base']['time_servers'] = ['ntp.lab.internal']

    it { is_expected.to render_file('/etc/chrony/chrony.conf').with_content('server 169.254.169.123 prefer') }
    it { is_expected.to render_file('/etc/chrony/chrony.conf').with_content('server ntp.lab.internal iburst') }
  end
end
