# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'ml_stack::conda' do
  override_attributes['software']['miniforge'] = {
    'version' => '26.3.2-2', 'url' => 'https://mirror.test/%{machine}.sh', 'sha256' => { 'amd64' => 'a' * 64 },
  }

  it 'installs what has the checksum' do
    expect(chef_run).to create_remote_file('/var/cache/causeway/miniforge-26.3.2-2.sh').with(
      source: ['https://mirror.test/x86_64.sh'], checksum: 'a' * 64
    )
    expect(chef_run).to run_execute('install Miniforge 26.3.2-2')
    expect(chef_run).to delete_file('/var/cache/causeway/miniforge-26.3.2-2.sh')
  end
end

describe 'ml_stack::conda' do
  context 'without a checksum' do
    override_attributes['software']['miniforge'] = {
      'version' => '26.3.2-2', 'url' => 'https://mirror.test/%{machine}.sh', 'sha256' => {},
    }

    it 'refuses' do
      expect { chef_run }.to raise_error(ArgumentError, /has nothing for amd64/)
    end
  end
end
