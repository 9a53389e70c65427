# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'ml_stack::environment' do
  override_attributes['software'] = {
    'python' => { 'version' => '3.12' }, 'numpy' => { 'version' => '2.5.5' },
    'tensorflow' => { 'version' => '2.21.0' }, 'torch' => { 'version' => '2.14.1' },
    'torchvision' => { 'version' => '0.29.2' }, 'opencv' => { 'version' => '4.14.0.94' },
    'tensorboard' => { 'version' => '2.21.0' },
  }

  context 'with Pascal GPUs' do
    override_attributes['gpu'] = { 'driver' => 580, 'family' => 'pascal' }

    it 'has the build for them' do
      expect(chef_run).to create_ml_stack_environment('ml').with(
        python: '3.12',
        requirements: include('torch==2.14.1+cu126', 'tensorflow[and-cuda]==2.21.0', 'numpy==2.5.5'),
        indexes: ['https://pypi.org/simple', 'https://download.pytorch.org/whl/cu126']
      )
    end
  end

  context 'with a K80' do
    override_attributes['gpu'] = { 'driver' => 470, 'family' => 'kepler' }

    it 'has the last PyTorch for it' do
      expect(chef_run).to create_ml_stack_environment('ml').with(
        requirements: include('torch==2.3.1+cu118', 'tensorflow==2.21.0', 'numpy==1.26.4')
      )
    end
  end

  context 'without GPUs' do
    it 'has the build for the CPU' do
      expect(chef_run).to create_ml_stack_environment('ml').with(requirements: include('torch==2.14.1+cpu'))
    end
  end
end
