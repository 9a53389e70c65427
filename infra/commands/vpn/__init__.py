"""The private network: profiles, certificates, tunnels, and what is brought to gateways."""
