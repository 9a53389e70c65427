# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'base::kernel' do
  let(:file) { '/etc/sysctl.d/60-causeway.conf' }

  it { is_expected.to render_file(file).with_content('fs.inotify.max_user_instances = 8192') }

  it 'has the kernel take it' do
    expect(chef_run.template(file)).to notify('service[systemd-sysctl]').to(:restart).immediately
  end
end
