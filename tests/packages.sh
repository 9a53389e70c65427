#!/bin/sh
# System packages that tests need, installed where that may be done: on a Debian or Ubuntu, as root or with a
# sudo that asks nothing. Elsewhere the tests that need them are skipped, and say so.
set -eu

missing=""
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
  missing="$missing chromium"
command -v chromedriver >/dev/null || missing="$missing chromium-driver"
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
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# shellcheck disable=SC2086 # a list of words
$sudo apt-get install -qq -y --no-install-recommends $missing >/dev/null
