#!/usr/bin/env bash
# Makes GoogleTest available to CMake and prints the prefix for CMAKE_PREFIX_PATH, or nothing if
# CMake finds it anyway. As root, installs libgtest-dev; otherwise unpacks that package into DIR.
#
#   scripts/gtest.sh DIR
set -euo pipefail
dir=${1:?usage: scripts/gtest.sh DIR}

probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
has_gtest() {
  cat >"$probe/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.24)
project(probe CXX)
find_package(GTest REQUIRED)
CMAKE
  rm -rf "$probe/build"
  "${CMAKE:-cmake}" -S "$probe" -B "$probe/build" "$@" >/dev/null 2>&1
}

if has_gtest; then
  exit 0
elif [[ -d "$dir/usr" ]] && has_gtest "-DCMAKE_PREFIX_PATH=$dir/usr"; then
  echo "$dir/usr"
elif ! command -v apt-get >/dev/null; then
  cat >&2 <<'HELP'
error: GoogleTest was not found. Install your system's package (gtest-devel, googletest), or build it
       from source with -DCMAKE_INSTALL_PREFIX=<folder> and set CMAKE_PREFIX_PATH=<folder>.
HELP
  exit 1
elif [[ $(id -u) -eq 0 ]]; then
  echo "== installing libgtest-dev" >&2
  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y libgtest-dev; } >&2
else
  echo "== unpacking libgtest-dev into $dir (no root, so it is not installed)" >&2
  mkdir -p "$dir"
  (
    cd "$dir"
    apt-get -qq download libgtest-dev googletest
    for package in ./*.deb; do dpkg-deb -x "$package" .; done
  ) >&2
  echo "$dir/usr"
fi
