#!/bin/sh
# Put what was uploaded where it belongs: the Chef repository, the checks, and files of the image's own.
set -eu

payload=/tmp/causeway-payload.tar.gz
umask 022
mkdir -p /var/lib/causeway
rm -rf /var/lib/causeway/chef /var/lib/causeway/image
tar -xzf "$payload" -C /var/lib/causeway --no-same-owner --no-same-permissions chef image
rm -f "$payload"

# files/ is laid out like /.
(cd /var/lib/causeway/image/files && find . -type f) | while IFS= read -r path; do
  mode=0644
  if [ "$(head -c 2 "/var/lib/causeway/image/files/$path")" = '#!' ]; then mode=0755; fi
  install -D -o root -g root -m "$mode" "/var/lib/causeway/image/files/$path" "/$path"
done
systemctl daemon-reload
systemctl enable causeway-boot.service
