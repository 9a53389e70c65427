# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'base::updates' do
  let(:file) { '/etc/apt/apt.conf.d/52causeway-unattended-upgrades' }

  it { is_expected.to install_package('unattended-upgrades') }
  it { is_expected.to render_file(file).with_content('APT::Periodic::Unattended-Upgrade "1";') }
  it { is_expected.to render_file(file).with_content('"^nvidia-";') }

  context 'when it is off' do
    default_attributes['base']['unattended_upgrades'] = false

    it { is_expected.to render_file(file).with_content('APT::Periodic::Unattended-Upgrade "0";') }
  end
end
