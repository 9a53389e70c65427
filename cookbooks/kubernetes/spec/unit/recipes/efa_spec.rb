# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes::worker' do
  platform(*PLATFORMS.first)
  default_attributes['causeway']['name'] = 'gpu-p5-1'
  default_attributes['causeway']['api'] = 'api.research.internal:6443'

  let(:file) { '/etc/sysctl.d/70-causeway-efa.conf' }
  let(:pages) { 5128 }

  before do
    allow(Causeway::Efa).to receive_messages(adapters: adapters, driven: driven, huge_pages: pages)
  end

  context 'with adapters' do
    let(:adapters) { 32 }
    let(:driven) { 32 }

    on_each_platform do
      it 'sets huge pages aside before the kubelet counts them' do
        expect(chef_run).to render_file(file).with_content(/^vm.nr_hugepages = 5128$/)
        expect(chef_run.file(file)).to notify('execute[huge pages are set aside]').to(:run).immediately
        expect(chef_run.file(file)).to notify('service[kubelet]').to(:restart).delayed
        expect(chef_run).not_to write_log('there are fewer huge pages than EFA wants')
        expect(chef_run).not_to write_log('the kernel has no driver for its Elastic Fabric Adapters')
      end
    end
  end

  context 'with adapters that no driver knows, and memory in pieces' do
    let(:adapters) { 16 }
    let(:driven) { 0 }
    let(:pages) { 4000 }

    it 'says so and goes on' do
      expect(chef_run).to write_log('there are fewer huge pages than EFA wants')
      expect(chef_run).to write_log('the kernel has no driver for its Elastic Fabric Adapters')
    end
  end

  context 'without' do
    let(:adapters) { 0 }
    let(:driven) { 0 }

    it { is_expected.not_to render_file(file) }
  end
end
