#!/bin/sh
# Puts a tree of files, a tar archive on standard input, onto this machine, and takes away what an earlier one
# put here and this one no longer has. Each file is replaced in one step, and only if it differs, so that a
# daemon never reads half of one. Prints the paths that changed.
#   receive.sh NAME    NAME tells one tree from another
set -eu
umask 077
kept=/var/lib/causeway/$1
mkdir -p "$kept"
rm -rf "$kept/incoming"
mkdir "$kept/incoming"
# With the time of now: OpenVPN reads a revocation list again only if its time or size is another.
tar -x -p -m --no-same-owner -f - -C "$kept/incoming"
cd "$kept/incoming"
find . -type f | sed 's/^\.//' | sort >"$kept/files.new"
touch "$kept/files"
# Until all is in place, both lists count: a run that is cut off is made good by the next one.
sort -u "$kept/files" "$kept/files.new" >"$kept/files.both"
mv "$kept/files.both" "$kept/files"
while read -r path; do
  [ -f "$path" ] && cmp -s ".$path" "$path" && [ "$(stat -c %a ".$path")" = "$(stat -c %a "$path")" ] && continue
  (umask 022 && mkdir -p "${path%/*}")
  # A file keeps the owner that the machine gave it: a key may be a daemon's.
  owner=root:root
  [ -f "$path" ] && owner=$(stat -c %u:%g "$path")
  cp -p ".$path" "$path.causeway-new"
  chown "$owner" "$path.causeway-new"
  mv -f "$path.causeway-new" "$path"
  echo "$path"
done <"$kept/files.new"
comm -13 "$kept/files.new" "$kept/files" | while read -r path; do
  rm -f "$path"
  echo "$path"
done
mv "$kept/files.new" "$kept/files"
rm -rf "$kept/incoming"
