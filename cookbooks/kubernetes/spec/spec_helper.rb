# frozen_string_literal: true

require 'chefspec'

# Platforms that the cookbook is for and that Fauxhai knows.
PLATFORMS = [%w(ubuntu 22.04), %w(ubuntu 24.04), %w(debian 12)].select do |name, version|
  File.exist?(File.join(Fauxhai.root, 'lib', 'fauxhai', 'platforms', name, "#{version}.json"))
end

RSpec.configure do |config|
  config.platform, config.version = PLATFORMS.first
  config.cookbook_path = File.expand_path('../..', __dir__)
  # An example of a container stubs it again.
  config.before { stub_command('systemd-detect-virt --container --quiet').and_return(false) }
end

# The same examples on each of them.
def on_each_platform(&examples)
  PLATFORMS.each do |name, version|
    context "on #{name} #{version}" do
      platform name, version
      class_exec(&examples)
    end
  end
end
