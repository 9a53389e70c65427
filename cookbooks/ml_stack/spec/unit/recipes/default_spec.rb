# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'ml_stack::default' do
  override_attributes['software'] = {
    'miniforge' => { 'version' => '26.3.2-2', 'url' => 'https://mirror.test/%{machine}.sh',
                     'sha256' => { 'amd64' => 'a' * 64 }, },
    'python' => { 'version' => '3.12' },
    'torch' => { 'version' => '2.14.1' },
  }
  override_attributes['ml_stack']['packages'] = {
    'numpy' => nil, 'tensorflow' => nil, 'torchvision' => nil, 'opencv' => nil, 'tensorboard' => nil,
  }

  it 'brings conda, the environment, and the way into it' do
    %w(conda environment shells).each { |name| expect(chef_run).to include_recipe("ml_stack::#{name}") }
  end
end
