# frozen_string_literal: true

#
# Cookbook:: ml_stack
# Recipe:: environment
#
# The environment for everybody, as the machine's GPUs can run it.

settings = node['ml_stack']
software = node['software']
family = node.read('gpu', 'family')
pins = settings['packages'].to_h.keys.to_h { |name| [name, software.dig(name, 'version')] }.compact
versions = Causeway::Wheels.versions(pins, family)
build = settings['build'] || Causeway::Wheels.build(
  driver: node.read('gpu', 'driver'), family: family, torch: versions.fetch('torch', '0')
)

(pins.to_a - versions.to_a).each do |name, version|
  log "#{name} #{version} has no code for #{family} GPUs: #{versions[name]} is installed"
end

requirements = Causeway::Wheels.requirements(settings['packages'].to_h, versions, build: build, family: family)
jupyterlab = settings['jupyterlab']
requirements << ['jupyterlab', jupyterlab['version']].compact.join('==') if jupyterlab['enabled']

ml_stack_environment settings['environment'] do
  python software['python']['version']
  requirements requirements + settings['further'].to_a
  indexes [settings['index'] || 'https://pypi.org/simple', "#{settings['wheels']}/#{build}"]
  channels settings['channels'].to_a
  imports settings['imports'].to_a
  conda settings['conda']
  builds settings['builds']
  keep settings['keep']
end
