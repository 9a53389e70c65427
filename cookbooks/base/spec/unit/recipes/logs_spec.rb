# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'base::logs' do
  let(:file) { '/etc/systemd/journald.conf.d/causeway.conf' }

  it { is_expected.to render_file(file).with_content('SystemMaxUse=1G') }
  it { is_expected.to render_file(file).with_content('MaxRetentionSec=30day') }

  it 'has the journal take it' do
    expect(chef_run.template(file)).to notify('service[systemd-journald]').to(:restart).delayed
  end
end
