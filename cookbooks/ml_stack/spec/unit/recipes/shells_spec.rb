# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'ml_stack::shells' do
  it 'has conda in login shells, and changes no PATH' do
    expect(chef_run).to render_file('/etc/profile.d/ml_stack.sh').with_content('/opt/conda/etc/profile.d/conda.sh')
    expect(chef_run).not_to render_file('/etc/profile.d/ml_stack.sh').with_content('PATH=')
    expect(chef_run).to create_template('/etc/systemd/user/tensorboard@.service')
    expect(chef_run).to delete_template('/etc/systemd/user/jupyterlab.service')
  end

  context 'with both' do
    override_attributes['ml_stack']['activate'] = true
    override_attributes['ml_stack']['jupyterlab']['enabled'] = true

    it 'begins in the environment' do
      expect(chef_run).to render_file('/etc/profile.d/ml_stack.sh').with_content('PATH=/opt/conda/envs/ml/bin')
      expect(chef_run).to create_template('/etc/systemd/user/jupyterlab.service')
    end
  end
end
