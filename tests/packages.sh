#!/bin/sh
# System packages that tests need, installed where that may be done: on a Debian or Ubuntu, as root or with a
# sudo that asks nothing. Elsewhere the tests that need them are skipped, and say so.
set -eu
PATH=$PATH:/usr/sbin:/sbin

missing=""
# need PACKAGE COMMAND…: the package, unless one of these commands is there.
need() {
  package=$1
  shift
  for command in "$@"; do
    if command -v "$command" >/dev/null; then return; fi
  done
  missing="$missing $package"
}

need chromium chromium chromium-browser google-chrome
need chromium-driver chromedriver

# The network lab: the daemons, ...
need charon-systemd charon-systemd
need strongswan-swanctl swanctl
need frr /usr/lib/frr/bgpd
need frr-pythontools /usr/lib/frr/frr-reload.py
need openvpn openvpn
need dnsmasq-base dnsmasq
need nftables nft
need openssh-server sshd
# ... what tests do with them, ...
need iproute2 ip
need iputils-ping ping
need iperf3 iperf3
need socat socat
need tcpdump tcpdump
need dnsutils dig
need easy-rsa /usr/share/easy-rsa/easyrsa
need openssl openssl
need rsync rsync
need util-linux unshare
need shellcheck shellcheck
need procps sysctl
# ... cookbooks: their Ruby and its style, the Erubis that Chef renders with, and what reads the files they write, ...
need ruby ruby
need rubocop rubocop
[ -e /usr/share/doc/ruby-erubis ] || missing="$missing ruby-erubis"
need sudo visudo
need chrony chronyd
need systemd systemd-analyze
need perl perl
need containerd containerd
need etcd-server etcd
need etcd-client etcdctl
need nfs-kernel-server exportfs
need nfs-common nfsconf
need xfsprogs mkfs.xfs
need rclone rclone
# ... and a VM for it all, where this machine's kernel lacks ESP or XFRM interfaces. The cloud kernels have no 9p.
need qemu-system-x86 qemu-system-x86_64
need busybox-static busybox
need kmod modprobe
# ... machines behind instances of the embedded AWS, and Packer, which bakes images on them, ...
need debootstrap debootstrap
need qemu-utils qemu-img
need e2fsprogs mke2fs
need openssh-client ssh-keygen
need packer packer
ls /lib/modules/*/kernel/fs/9p/9p.ko* >/dev/null 2>&1 || missing="$missing linux-image-amd64"

[ -n "$missing" ] || exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    echo "tests/packages.sh: not root, so these are left out:$missing" >&2
    exit 0
  fi
  sudo="sudo -n"
fi
if ! command -v apt-get >/dev/null; then
  echo "tests/packages.sh: no apt-get, so these are left out:$missing" >&2
  exit 0
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
# INITRD=No: the lab brings its own; the kernel is never booted by this machine.
# shellcheck disable=SC2086 # a list of words
$sudo env DEBIAN_FRONTEND=noninteractive INITRD=No \
  apt-get install -qq -y --no-install-recommends $missing >/dev/null
