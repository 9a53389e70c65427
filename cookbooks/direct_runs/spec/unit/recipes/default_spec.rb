# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'direct_runs::default' do
  default_attributes['causeway'] = { 'site' => 'lab', 'private' => ['10.0.0.0/8'] }
  default_attributes['software']['uv']['version'] = '0.13.9'
  default_attributes['base']['login_groups'] = ['researchers']

  people = [
    { 'id' => 'ada', 'uid' => 10_001 },
    { 'id' => 'alan', 'uid' => 10_002, 'action' => 'remove' },
    { 'id' => 'grace', 'uid' => 10_003 },
  ]

  before do
    stub_command('systemd-detect-virt --container --quiet').and_return(false)
    stub_data_bag('users').and_return(people.map { |person| person['id'] })
    people.each { |person| stub_data_bag_item('users', person['id']).and_return(person) }
    stub_data_bag('groups').and_return(['researchers'])
    stub_data_bag_item('groups', 'researchers').and_return('id' => 'researchers', 'members' => %w(ada alan))
    allow(File).to receive(:exist?).and_call_original
    allow(File).to receive(:exist?).with('/var/lib/systemd/linger/ada').and_return(false)
    allow_any_instance_of(Chef::Resource).to receive(:systemd?).and_return(true)
  end

  it { is_expected.to install_package(include('podman', 'uidmap')) }

  it 'lets those go on who may log in, and no longer those who left' do
    is_expected.to run_execute('loginctl enable-linger ada')
    is_expected.not_to run_execute('loginctl enable-linger grace')
    is_expected.to delete_file('/var/lib/systemd/linger/alan')
  end

  it 'has the pinned uv on the path' do
    is_expected.to run_execute('install uv 0.13.9')
    is_expected.to create_link('/usr/local/bin/uv').with(to: '/opt/causeway/uv/0.13.9/bin/uv')
  end

  it 'leaves SSH open' do
    is_expected.to render_file('/etc/causeway/machine.nft').with_content('tcp dport 22 accept')
    is_expected.to enable_systemd_unit('causeway-firewall.service')
  end

  context 'without a firewall' do
    override_attributes['direct_runs']['firewall'] = false

    it { is_expected.to delete_template('/etc/causeway/machine.nft') }
    it { is_expected.to disable_systemd_unit('causeway-firewall.service') }
  end
end
