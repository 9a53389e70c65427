#!/bin/sh
# Take away what no instance needs: packages that nothing wants, caches, logs, kernels that will not boot again.
set -eu
export DEBIAN_FRONTEND=noninteractive

apt-get -y autoremove --purge

# The newest kernel boots next; the one that runs stays too, for its modules are in use.
running=$(uname -r)
newest=$(find /lib/modules -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -V | tail -n 1)
# shellcheck disable=SC2016 # dpkg-query's own placeholders
old=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 'linux-image-[0-9]*' 'linux-headers-[0-9]*' 'linux-modules-[0-9]*' 2>/dev/null |
  sed -n 's/^installed //p' | grep -v -F -e "${running%-*}" -e "${newest%-*}" || true)
if [ -n "$old" ]; then
  # shellcheck disable=SC2086 # a list of packages
  apt-get -y purge $old
fi

apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/cache/man/* /var/lib/dpkg/*-old
rm -rf /var/cache/chef /var/chef/cache /root/.chef /root/.cinc /root/.cache /root/.wget-hsts

# Instances do not need the logs of the bake.
if command -v journalctl >/dev/null; then journalctl --rotate --vacuum-time=1s >/dev/null 2>&1 || true; fi
find /var/log -type f \( -name '*.gz' -o -name '*.[0-9]' -o -name '*.old' \) -delete
find /var/log -type f -exec truncate -s 0 {} +
