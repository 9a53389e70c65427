# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'base::network' do
  let(:file) { '/etc/systemd/networkd.conf.d/10-causeway.conf' }

  it { is_expected.to render_file(file).with_content('ManageForeignRoutes=no') }

  it 'has networkd read it, where it runs' do
    restart = 'execute[systemctl try-restart systemd-networkd.service]'
    expect(chef_run.cookbook_file(file)).to notify(restart).to(:run).delayed
  end
end
