#!/bin/sh
# Chef Infra Client, the pinned version, from a package whose checksum is known. What is there already stays.
# CHEF_VERSION, CHEF_URL, CHEF_SHA256: see image.pkr.hcl.
set -eu

if command -v chef-client >/dev/null; then
  echo "here already: $(CHEF_LICENSE=accept-no-persist chef-client --version)"
  exit 0
fi
if [ -z "$CHEF_URL" ]; then
  echo "the source image has no chef-client, and no package of it is named; see software.chef in the spec" >&2
  exit 1
fi

package=$(mktemp --suffix=.deb)
trap 'rm -f "$package"' EXIT
# A mirror may need a moment; a file that is not the right one is not tried again.
if command -v curl >/dev/null; then
  curl -fsSL --proto '=https,http' --retry 5 --retry-connrefused --max-time 600 -o "$package" "$CHEF_URL"
else
  wget -q --tries=5 --timeout=60 -O "$package" "$CHEF_URL"
fi
if ! echo "$CHEF_SHA256  $package" | sha256sum -c --status -; then
  echo "$CHEF_URL is not the package that is pinned:" >&2
  echo "wanted $CHEF_SHA256, got $(sha256sum "$package" | cut -d' ' -f1)" >&2
  exit 1
fi
DEBIAN_FRONTEND=noninteractive dpkg -i "$package"

case $(CHEF_LICENSE=accept-no-persist chef-client --version) in
*" $CHEF_VERSION"*) ;;
*)
  echo "$CHEF_URL is not Chef Infra Client $CHEF_VERSION" >&2
  exit 1
  ;;
esac
