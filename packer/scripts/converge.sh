#!/bin/sh
# Run the image's roles: the same cookbooks as on every machine, with causeway.baking set.
set -eu

chef=/var/lib/causeway/chef
mkdir -p "$chef/nodes"
node=bake-$CAUSEWAY_IMAGE
# chef-zero picks the node object by its name, and writes what it found back into it.
cp "$chef/images/$CAUSEWAY_IMAGE.json" "$chef/nodes/$node.json"

export DEBIAN_FRONTEND=noninteractive
# apt may be held by unattended upgrades of the source image's first boot.
systemctl stop apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service || true
/usr/local/lib/causeway/client --local-mode --no-color --config "$chef/client.rb" --node-name "$node"
systemctl start apt-daily.timer apt-daily-upgrade.timer || true

# The image is not a node: each instance becomes one at its first boot.
rm -f "$chef/nodes/$node.json" "$chef/clients/$node.json"
