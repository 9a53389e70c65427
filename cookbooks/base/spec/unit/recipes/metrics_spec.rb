# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'base::metrics' do
  let(:file) { '/etc/default/prometheus-node-exporter' }

  default_attributes['causeway']['address'] = '10.200.0.11'

  it { is_expected.to install_package('prometheus-node-exporter') }
  it { is_expected.to enable_service('prometheus-node-exporter') }
  it { is_expected.to render_file(file).with_content('--web.listen-address=10.200.0.11:9100') }

  it 'leaves it to systemd while the address is not there' do
    expect(chef_run).not_to start_service('prometheus-node-exporter now')
  end

  context 'when the address is there' do
    automatic_attributes['network']['interfaces']['eno1']['addresses'] = { '10.200.0.11' => { 'family' => 'inet' } }

    it { is_expected.to start_service('prometheus-node-exporter now') }
  end

  context 'while an image is made' do
    default_attributes['causeway']['baking'] = true

    it { is_expected.to render_file(file).with_content('--web.listen-address=127.0.0.1:9100') }
  end

  context 'when it is off' do
    default_attributes['base']['node_exporter'] = false

    it { is_expected.not_to install_package('prometheus-node-exporter') }
  end
end
