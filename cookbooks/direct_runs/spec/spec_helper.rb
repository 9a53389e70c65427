# frozen_string_literal: true

require 'chefspec'

# Platforms that the cookbook is for and that Fauxhai knows.
PLATFORMS = [%w(ubuntu 22.04), %w(ubuntu 24.04), %w(debian 12)].select do |name, version|
  File.exist?(File.join(Fauxhai.root, 'lib', 'fauxhai', 'platforms', name, "#{version}.json"))
end

RSpec.configure do |config|
  config.platform, config.version = PLATFORMS.first
  config.cookbook_path = File.expand_path('../..', __dir__)
end
