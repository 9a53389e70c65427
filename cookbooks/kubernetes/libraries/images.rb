# frozen_string_literal: true

require 'json'

module Causeway
  # The images that kubeadm runs a master with.
  module Images
    module_function

    # Of the kubeadm that is installed: by default it would ask the internet for the newest version.
    def arguments
      ['--kubernetes-version', out('kubeadm', 'version', '--output', 'short').strip]
    end

    def all_here?
      listed = JSON.parse(out('crictl', 'images', '--output', 'json'))['images']
      here = listed.flat_map { |each| each['repoTags'] }
      (out('kubeadm', 'config', 'images', 'list', *arguments).split - here).empty?
    end

    def out(*command)
      ran = Mixlib::ShellOut.new(*command, timeout: 120).run_command
      ran.error!
      ran.stdout
    end
  end
end
