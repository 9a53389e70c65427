"""The running VPN: tunnels and their keys, gateways, and laptops' profiles."""
