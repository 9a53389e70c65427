#!/bin/sh
# packages.sh: the system packages that tests need, installed where that may be done: on a Debian or Ubuntu, as root or
# with a sudo that asks nothing. Elsewhere the tests that need them are skipped, and say so.
# packages.sh --list: their names, a line each, and nothing is installed.
#
# What a role's machines have is read from its cookbook, so that tests run what machines run.
set -eu
cookbooks=$(dirname "$0")/../cookbooks

# role COOKBOOK: the list `default[COOKBOOK]['packages'] = %w(…)` of its attributes.
role() {
  file=$cookbooks/$1/attributes/default.rb
  names=$(tr '\n' ' ' <"$file" | sed -n "s/.*default\['$1'\]\['packages'\] = %w(\([^)]*\)).*/\1/p")
  # shellcheck disable=SC2086 # a list of words
  set -- $names
  if [ $# -eq 0 ]; then
    echo "tests/packages.sh: $file has no list of packages" >&2
    exit 1
  fi
  printf '%s\n' "$@"
}

list() {
  # The network lab: gateways, VPN servers, ...
  role network_site
  role network_access
  # ... the rest is named here; a line's first words, up to #.
  sed 's/ *#.*//; /^$/d' <<END
iputils-ping
iperf3
socat
tcpdump
wireguard-go        # where this kernel has no WireGuard
dnsutils
easy-rsa
openssl
openssh-server
openssh-client
libnss-wrapper
rsync
util-linux
procps
network-manager          # on a bus of its own: a laptop
network-manager-openvpn
dbus-daemon
apparmor                 # its parser: servers under a profile, in the lab's VM

# What researchers run: several processes that train together, and containers without root.
python3-torch
podman
uidmap

# Pages in a browser.
curl
chromium
chromium-driver

# Signatures of what images are made of.
gnupg

# Cookbooks: their Ruby and its style, the Erubis that Chef renders with, what reads the files they write.
ruby
ruby-erubis
rubocop
shellcheck
sudo
chrony
systemd
perl
containerd
nfs-kernel-server
nfs-common
xfsprogs
rclone

# A real API server's store. Alerts and dashboards are read by promtool.
etcd-server
etcd-client
prometheus

# MLflow's database. Tests start their own.
postgresql

# Nodes with a real kubelet: in the lab's VM, and of a whole cluster on this kernel.
runc
iptables
containernetworking-plugins
dnsmasq-base
nftables

# A VM for the lab, where this machine's kernel lacks ESP or XFRM interfaces. The cloud kernels have no 9p.
qemu-system-x86
busybox-static
kmod
linux-image-amd64

# Machines behind instances of the embedded AWS, and Packer, which bakes images on them.
debootstrap
qemu-utils
e2fsprogs
packer

# Images of our own Dockerfiles.
buildah
END
}

packages=$(list)
if [ "${1:-}" = --list ]; then
  printf '%s\n' "$packages" | sort -u
  exit 0
fi

if ! command -v apt-get >/dev/null; then
  echo "tests/packages.sh: apt-get not found, so tests that need a package which is not installed are skipped" >&2
  exit 0
fi

missing=""
for package in $packages; do
  case $package in
    # Any kernel with 9p will do.
    linux-image-*) if ls /lib/modules/*/kernel/fs/9p/9p.ko* >/dev/null 2>&1; then continue; fi ;;
  esac
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    echo "tests/packages.sh: not root, so these are left out:$missing" >&2
    exit 0
  fi
  sudo="sudo -n"
fi

# Daemons are installed, not started: tests start their own. A policy that is there already is put back.
policy=/usr/sbin/policy-rc.d
put_back() {
  $sudo rm -f "$policy"
  if [ -e "$policy.before-tests" ]; then $sudo mv "$policy.before-tests" "$policy"; fi
}
if [ -e "$policy" ]; then $sudo mv "$policy" "$policy.before-tests"; fi
trap put_back EXIT
trap 'exit 1' HUP INT TERM
printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
$sudo chmod 755 "$policy"

$sudo apt-get update -qq
wanted="" unknown=""
for package in $missing; do
  if apt-cache show "$package" >/dev/null 2>&1; then wanted="$wanted $package"; else unknown="$unknown $package"; fi
done
[ -z "$unknown" ] || echo "tests/packages.sh: this distribution lacks$unknown" >&2
[ -n "$wanted" ] || exit 0
# INITRD=No: the lab brings its own; the kernel is never booted by this machine.
# shellcheck disable=SC2086 # a list of words
$sudo env DEBIAN_FRONTEND=noninteractive INITRD=No \
  apt-get install -qq -y --no-install-recommends $wanted >/dev/null

# It would take this machine's interfaces at the next boot.
case " $wanted " in
  *" network-manager "*) $sudo systemctl --quiet disable NetworkManager.service NetworkManager-wait-online.service || true ;;
esac
