#!/usr/bin/env bash
# Prints the path of a libgomp.so.1 for wheels: that of Debian 11, which needs glibc 2.17. The
# compiler's needs what the compiler's system has.
#
#   scripts/older_gomp.sh MACHINE     x86_64 or aarch64
set -euo pipefail
cd "$(dirname "$0")/.."
case $1 in
  x86_64) architecture=amd64 sum=4530c95aefa48e33fd8cf4acbe5c4b559dbe7bdf4c56469986c83a203982cef1 ;;
  aarch64) architecture=arm64 sum=813af2e0b8ba0a7cea18c988cd843412ef6d0415700fc860d62816750e741670 ;;
  *)
    echo "error: there is no libgomp for $1" >&2
    exit 2
    ;;
esac
folder=$PWD/build/gomp/$1
library=$folder/libgomp.so.1
if [[ ! -e $library ]]; then
  package=libgomp1_10.2.1-6_$architecture.deb
  mkdir -p "$folder"
  curl -fsSL -o "$folder/$package" "https://deb.debian.org/debian/pool/main/g/gcc-10/$package"
  echo "$sum  $folder/$package" | sha256sum --quiet --check >&2
  dpkg-deb --fsys-tarfile "$folder/$package" |
    tar -xO --wildcards './usr/lib/*/libgomp.so.1.0.0' >"$library.new"
  mv "$library.new" "$library"
fi
echo "$library"
