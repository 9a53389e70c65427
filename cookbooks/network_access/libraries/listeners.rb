# frozen_string_literal: true

module Causeway
  # A VPN server's listeners, by the files that it has.
  module Listeners
    SETTINGS = '/etc/openvpn/server'
    NEEDED = %w(ca.crt server.crt server.key tls-crypt-v2.key crl.pem).map { |name| "#{SETTINGS}/#{name}" }.freeze
    WIREGUARD = '/etc/wireguard/wg-laptops.conf'
    WIREGUARD_NEEDED = %w(/etc/wireguard/wg-laptops.key /etc/remote-access/peers.json).freeze

    module_function

    # Units of those that a tree configures.
    def units(tree)
      units = openvpn(tree).map { |name| "openvpn-server@#{name.delete_suffix('.conf')}" }
      wireguard?(tree) ? units + %w(wg-quick@wg-laptops) : units
    end

    # Whether the server has the certificate and the keys of all that a tree configures: without them it accepts no
    # client.
    def ready?(tree)
      needed = openvpn(tree).empty? ? [] : NEEDED
      needed += WIREGUARD_NEEDED if wireguard?(tree)
      needed.all? { |path| ::File.exist?(path) }
    end

    def openvpn(tree)
      folder = "#{tree}#{SETTINGS}"
      ::File.directory?(folder) ? Dir.children(folder).grep(/\.conf\z/).sort : []
    end

    def wireguard?(tree)
      ::File.exist?("#{tree}#{WIREGUARD}")
    end
  end
end
