#!/usr/bin/env bash
# Compiles CPython in a Debian whose own is too old for singa, and prints the interpreter, for
# scripts/debian.sh. The sources are those of Debian 12. Needs Debian and root.
#
#   scripts/older_python.sh SUITE
set -euo pipefail
cd "$(dirname "$0")/.."
suite=$1
folder=$PWD/build/debian/python-$suite sources=$PWD/build/debian/sources
echo "$folder/bin/python3"
[[ ! -x $folder/bin/python3 ]] || exit 0

architecture=$(dpkg --print-architecture)
root=$(scripts/system.sh make "$suite" "$architecture" gcc libc6-dev libffi-dev make zlib1g-dev)
mkdir -p "$sources/lists/partial"
echo "deb-src http://deb.debian.org/debian bookworm main" >"$sources/list"
apt=(apt-get -qq -o "Dir::Etc::SourceList=$sources/list" -o Dir::Etc::SourceParts=-
  -o "Dir::State::Lists=$sources/lists")
"${apt[@]}" update >&2
(cd "$sources" && "${apt[@]}" source --download-only python3.11 >&2)
rm -rf "$root/python"
mkdir "$root/python"
tar -xf "$sources"/python3.11_*.orig.tar.* -C "$root/python" --strip-components=1
echo "== compiling CPython in Debian $suite" >&2
if ! scripts/system.sh run "$root" "" bash -euc '
cd /python
./configure --prefix="$1" OPT="-DNDEBUG -O1 -w" # quick to compile
make -j"$2"
make bininstall sharedinstall
make libinstall PYTHON_FOR_BUILD=true # does not compile all modules
' bash "$folder" "${JOBS:-$(nproc)}" >"$folder.log" 2>&1; then
  tail -n 30 "$folder.log" >&2
  exit 1
fi
cp -a "$root$folder" "$folder"
