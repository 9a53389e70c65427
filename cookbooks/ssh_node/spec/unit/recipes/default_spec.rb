# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'ssh_node::default' do
  default_attributes['causeway'] = { 'hostname' => 'login-1', 'site' => 'us-west-2' }

  it { is_expected.to install_package(include('screen', 'tmux')) }
  it { is_expected.to delete_template('/etc/modprobe.d/causeway-gpu-access.conf') }

  it 'shares the machine between people' do
    file = '/etc/systemd/system/user-.slice.d/60-causeway.conf'
    expect(chef_run).to render_file(file).with_content('MemoryHigh=80%')
    expect(chef_run).not_to render_file(file).with_content('CPUQuota')
  end

  it 'has logind read its configuration without losing sessions' do
    file = chef_run.cookbook_file('/etc/systemd/logind.conf.d/causeway.conf')
    expect(file).to notify('execute[logind reads its configuration, for people]').to(:run).immediately
    expect(chef_run.execute('logind reads its configuration, for people').command).to include('--signal=HUP')
  end

  it 'makes homes at the first login' do
    file = '/usr/share/pam-configs/causeway-mkhomedir'
    expect(chef_run.template(file)).to notify('execute[have PAM make homes]').to(:run).immediately
  end

  context 'with groups of its own' do
    normal_attributes['ssh_node']['groups'] = ['researchers']

    it 'has sshd let in those alone' do
      expect(chef_run.node['base']['login_groups']).to eq(['researchers'])
    end
  end

  context 'with GPUs for a group alone' do
    override_attributes['ssh_node']['gpu_group'] = 'researchers'

    before do
      stub_data_bag('groups').and_return(['researchers'])
      stub_data_bag_item('groups', 'researchers').and_return('id' => 'researchers', 'gid' => 3002)
    end

    it 'has the driver make its files so' do
      file = '/etc/modprobe.d/causeway-gpu-access.conf'
      expect(chef_run).to render_file(file).with_content('NVreg_DeviceFileGID=3002 NVreg_DeviceFileMode=0660')
    end
  end

  context 'in a region' do
    default_attributes['ssh_node']['access'] = { 'login-1' => ['engineers'], 'login-2' => ['students'] }

    it 'finds its groups by its name' do
      expect(chef_run.node['base']['login_groups']).to eq(['engineers'])
    end
  end
end
