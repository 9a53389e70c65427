"""The private network, live: keys, tunnels, what they do, and laptops' profiles."""
