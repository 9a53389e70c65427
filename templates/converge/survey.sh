# What a machine tells of itself, for `invoke nodes` and `invoke enroll`: one JSON object a line, each with one key.
# Read-only. Standard tools alone: it must run on a machine where nothing of ours is yet.
set -u
text() { printf '{"%s":"%s"}\n' "$1" "$(printf '%s' "$2" | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g')"; }
file() { if [ -r "$2" ]; then printf '{"%s":%s}\n' "$1" "$(tr '\n' ' ' <"$2")"; fi; }

# shellcheck source=/dev/null
. /etc/os-release
text os "$ID $VERSION_ID"
text kernel "$(uname -r)"
text architecture "$(uname -m)"
text booted "$(date -u -d "@$(awk '/^btime/ { print $2 }' /proc/stat)" +%Y-%m-%dT%H:%M:%SZ)"
text now "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
text cpus "$(nproc --all)"
text memory_kib "$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)"
for path in /sys/class/net/*; do
  if [ -e "$path/device" ]; then text mac "$(cat "$path/address")"; fi
done
ip -o -4 addr show scope global 2>/dev/null | awk '{ print $4 }' | while read -r address; do
  text address "${address%/*}"
done
lsblk -bdno PATH,SIZE,TYPE 2>/dev/null | awk '$3 == "disk" { print $1, $2 }' | while read -r disk; do text disk "$disk"; done
# How many disks an array lacks (kernel, "RAID arrays"): "md0 1".
for path in /sys/block/md*/md/degraded; do
  if [ -r "$path" ]; then array=${path#/sys/block/}; text array "${array%%/*} $(cat "$path")"; fi
done
# NVIDIA's display and 3D controllers (PCI vendor 10de, classes 0300 and 0302).
gpus=0
for path in /sys/bus/pci/devices/*; do
  if [ "$(cat "$path/vendor" 2>/dev/null)" = 0x10de ]; then
    case $(cat "$path/class") in 0x0300* | 0x0302*) gpus=$((gpus + 1)) ;; esac
  fi
done
text gpus "$gpus"
for package in kubelet containerd containerd.io chef cinc openvpn strongswan-swanctl frr; do
  version=$(dpkg-query -W -f '${db:Status-Abbrev}${Version}' "$package" 2>/dev/null) || continue
  # Held packages have an h in place of the first i.
  case $version in [ih]i\ *) text "package" "$package ${version#?i }" ;; esac
done
if [ -r /proc/driver/nvidia/version ]; then
  text "package" "nvidia $(sed -n '1s/.*Kernel Module[^0-9]*\([0-9.]*\).*/\1/p' /proc/driver/nvidia/version)"
fi
if [ -e /run/reboot-required ]; then text reboot yes; fi
# Four bytes of attributes, then the value (UEFI 2.10, 3.3). A machine without UEFI has no such variable.
secure=/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
if [ -r "$secure" ] && [ "$(od -An -t u1 -j 4 -N 1 "$secure" | tr -d ' ')" = 1 ]; then text secure_boot yes; fi
file report /var/lib/causeway/report.json
file rehearsal /var/lib/causeway/why-run.json
file gpu /var/lib/causeway/gpu-health.json
file burn_in /var/lib/causeway/burn-in.json
text end yes
