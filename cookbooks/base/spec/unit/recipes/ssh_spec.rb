# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'base::ssh' do
  before do
    stub_data_bag('groups').and_return(['engineers'])
    stub_data_bag_item('groups', 'engineers').and_return('id' => 'engineers', 'gid' => 3001, 'sudo' => true)
  end

  let(:file) { '/etc/ssh/sshd_config.d/10-causeway.conf' }

  it 'refuses passwords' do
    expect(chef_run).to render_file(file).with_content(/^PasswordAuthentication no$/)
    expect(chef_run).to render_file(file).with_content(/^PermitRootLogin prohibit-password$/)
    expect(chef_run).not_to render_file(file).with_content('AllowGroups')
  end

  it 'waits for longer than homes may take to be mounted' do
    longest = ::File.read("#{__dir__}/../../../../storage/attributes/default.rb")[/mount_timeout'\] = (\d+)/, 1].to_i
    expect(longest).to be > 0
    expect(chef_run).to(render_file(file).with_content do |text|
      expect(text[/^LoginGraceTime (\d+)/, 1].to_i).to be > longest
    end)
  end

  it 'has sshd read it' do
    expect(chef_run.template(file)).to notify('service[ssh]').to(:reload).delayed
  end

  context 'with login groups' do
    default_attributes['base']['login_groups'] = ['researchers']

    it 'always lets those in who administer the machine' do
      expect(chef_run).to render_file(file).with_content('AllowGroups causeway engineers researchers root sudo')
    end
  end

  context 'where another machine holds the homes' do
    default_attributes['causeway'] = { 'site' => 'lab' }
    default_attributes['storage']['sites'] = { 'lab' => { 'mounts' => [{ 'path' => '/home' }] } }

    before do
      allow(Causeway::People).to receive(:from_afar).and_return('causeway')
      allow(Causeway::People).to receive(:own_keys).and_return(__FILE__)
    end

    it 'keeps the keys of the user who runs this where no mount hides them' do
      expect(chef_run).to create_remote_file_if_missing('/etc/ssh/authorized_keys.own/causeway')
        .with(source: ["file://#{__FILE__}"], mode: '0600', owner: 'causeway')
    end
  end
end
