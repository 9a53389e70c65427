#!/bin/sh
# Make it an image: nothing that belongs to this one machine, and no way in for who built it. Last of all, as
# the user who runs it loses his key; then look whether all of that is so.
set -eu
export LC_ALL=C

image=/var/lib/causeway/image

# Keys of the build, and this machine's own: cloud-init makes new ones at the first boot.
rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
find /root /home -xdev \( -name authorized_keys -o -name authorized_keys2 -o -name known_hosts \) -path '*/.ssh/*' -delete
find /root /home -xdev \( -name '.*_history' -o -name .lesshst -o -name .viminfo \) -delete
rm -f /var/lib/systemd/random-seed

# Users whose names come with the source image have no password, and none is left by the build.
passwd -l root >/dev/null

# An id is made at the first boot where the file is empty (machine-id(5)); without a file it would be kept in
# memory only.
truncate -s 0 /etc/machine-id
if [ -e /var/lib/dbus ]; then ln -sf /etc/machine-id /var/lib/dbus/machine-id; fi

# Everything that was learnt of this instance: its metadata, its leases, its network's names.
if command -v cloud-init >/dev/null; then cloud-init clean --logs --seed; fi
rm -f /var/lib/dhcp/*.leases /run/systemd/netif/leases/* /etc/netplan/50-cloud-init.yaml
rm -f /var/lib/causeway/booted /var/lib/causeway/report.json
rm -rf /etc/causeway/secrets /etc/causeway/node.json

python3 "$image/checks/run.py" --vars "$image/checks.json" sealed
rm -rf "$image"
find /tmp /var/tmp -mindepth 1 -delete 2>/dev/null || true

# Blocks that were freed cost nothing in a snapshot.
fstrim --all 2>/dev/null || true
sync
