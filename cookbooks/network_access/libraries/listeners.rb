# frozen_string_literal: true

module Causeway
  # A VPN server's listeners, by the files that it has.
  module Listeners
    SETTINGS = '/etc/openvpn/server'
    NEEDED = %w(ca.crt server.crt server.key tls-crypt-v2.key crl.pem).freeze

    module_function

    # Units of those that a tree configures.
    def units(tree)
      names = Dir.children("#{tree}#{SETTINGS}").grep(/\.conf\z/).sort
      names.map { |name| "openvpn-server@#{name.delete_suffix('.conf')}" }
    end

    # Whether the server has its certificate and its keys: it lets nobody in without.
    def ready?
      NEEDED.all? { |name| ::File.exist?("#{SETTINGS}/#{name}") }
    end
  end
end
