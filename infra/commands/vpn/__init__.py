"""Commands on the VPN: profiles, certificates, tunnels, and pushing files to gateways."""
