#!/bin/sh
# The first boot of the build instance must be over: cloud-init writes apt's sources and may hold its lock.
set -eu

if ! command -v cloud-init >/dev/null; then
  echo "no cloud-init on this image: nothing to wait for"
  exit 0
fi
# 2: done, with warnings (cloud-init status(1), since 23.4).
code=0
cloud-init status --wait || code=$?
case $code in
0 | 2) ;;
*)
  cloud-init status --long || true
  echo "cloud-init of the source image failed ($code); nothing can be built on it" >&2
  exit 1
  ;;
esac
