# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'base::users' do
  before do
    people = {
      'ada' => { 'uid' => 2001, 'name' => 'Ada Lovelace', 'ssh_keys' => ['ssh-ed25519 AAAA ada'] },
      'grace' => { 'uid' => 2002, 'expires' => '2999-12-31' },
      'eve' => { 'uid' => 2003, 'expires' => '2020-01-01' },
      'mallory' => { 'uid' => 2004, 'action' => 'remove' },
    }
    stub_data_bag('users').and_return(people.keys)
    people.each { |id, item| stub_data_bag_item('users', id).and_return(item.merge('id' => id)) }
    stub_data_bag('groups').and_return(['engineers'])
    stub_data_bag_item('groups', 'engineers').and_return(
      'id' => 'engineers', 'gid' => 3001, 'sudo' => true, 'members' => %w(ada grace eve mallory)
    )
  end

  it { is_expected.to create_base_user('ada').with(uid: 2001, ssh_keys: ['ssh-ed25519 AAAA ada']) }
  it { is_expected.to create_base_user('grace').with(expires: '2999-12-31') }
  it { is_expected.to remove_base_user('eve') }
  it { is_expected.to remove_base_user('mallory') }
  it { is_expected.to create_group('engineers').with(gid: 3001, members: %w(ada grace), append: false) }

  it 'lets them do everything' do
    expect(chef_run).to render_file('/etc/sudoers.d/causeway').with_content('%engineers ALL=(ALL:ALL) NOPASSWD: ALL')
  end

  context 'with the resource' do
    step_into :base_user

    it { is_expected.to create_user('ada').with(uid: 2001, gid: 2001, home: '/home/ada', manage_home: true) }
    it { is_expected.to create_user('grace').with(expire_date: '3000-01-01') }
    it { is_expected.to create_file('/etc/ssh/authorized_keys.d/ada').with(mode: '0600', owner: 'ada') }
    it { is_expected.to manage_user('eve').with(shell: '/usr/sbin/nologin', expire_date: '1970-01-02') }
    it { is_expected.to delete_file('/etc/ssh/authorized_keys.d/eve') }
  end

  context 'where homes are mounted from elsewhere' do
    default_attributes['causeway']['site'] = 'rack-a'
    default_attributes['storage']['sites']['rack-a']['mounts'] = [{ 'path' => '/home', 'kind' => 'nfs' }]

    it { is_expected.to create_base_user('ada').with(manage_home: false) }
  end
end
