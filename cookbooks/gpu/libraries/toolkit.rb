# frozen_string_literal: true

module Causeway
  # NVIDIA's container toolkit.
  module Toolkit
    CONFIGURATION = '/etc/nvidia-container-runtime/config.toml'
    # What it does where its configuration says nothing.
    DEFAULTS = {
      'accept-nvidia-visible-devices-envvar-when-unprivileged' => true,
      'accept-nvidia-visible-devices-as-volume-mounts' => false,
    }.freeze

    module_function

    # Whether its configuration has these values already.
    def says?(wanted, path = CONFIGURATION)
      text = ::File.file?(path) ? ::File.read(path) : ''
      wanted.all? do |key, value|
        found = text[/^\s*#{Regexp.escape(key)}\s*=\s*(true|false)/, 1]
        (found.nil? ? DEFAULTS[key] : found == 'true') == value
      end
    end
  end
end
