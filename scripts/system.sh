#!/usr/bin/env bash
# A small Debian with Python in a folder, for programs that shall see nothing of this machine. Needs root.
#
#   scripts/system.sh make SUITE ARCHITECTURE [PACKAGE...]   prints the folder; makes it unless it is
#                                                            there
#   scripts/system.sh run FOLDER WITH COMMAND...             runs a command there, without a network
#
# SUITE          a release that debootstrap knows, such as bookworm or sid
# ARCHITECTURE   Debian's name of a processor; QEMU emulates arm64 on others
# PACKAGE        more of its packages, in a folder of their own
# WITH           a folder of this machine that the command sees under the same name, or ""
set -euo pipefail
cd "$(dirname "$0")/.."

need() { # need COMMAND PACKAGE
  command -v "$1" >/dev/null || { apt-get -qq update && apt-get -qq install -y "$2"; } >&2
}

make_system() { # make_system SUITE ARCHITECTURE
  local suite=$1 architecture=$2 root=$PWD/build/debian/$1-$2${3:+-more} foreign=() package
  local include=python3-venv
  for package in "${@:3}"; do include+=,$package; done
  echo "$root"
  [[ ! -e $root/made ]] || return 0
  need debootstrap debootstrap
  [[ $architecture == "$(dpkg --print-architecture)" ]] || foreign=(--foreign)
  echo "== making a system: Debian $suite for $architecture" >&2
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap "${foreign[@]}" --arch="$architecture" --variant=minbase --include="$include" \
    "$suite" "$root" >"$root.log" 2>&1 || { tail -n 30 "$root.log" >&2 && exit 1; }
  # The second stage would configure the packages, in QEMU for minutes. Programs run without it.
  if [[ ${#foreign[@]} -gt 0 ]]; then
    for package in "$root"/var/cache/apt/archives/*.deb; do
      dpkg-deb --fsys-tarfile "$package" | tar -C "$root" -x --keep-directory-symlink
    done
  fi
  touch "$root/made"
}

# The script in the new system. Mounts, and QEMU's registration, end with its namespaces. The emulated
# processor is not the default one, for which OpenBLAS 0.3.34 calls kernels that its wheel lacks.
in_system='
root=$1 folder=$2 foreign=$3
shift 3
if [[ -n $foreign ]]; then
  mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
  cat /usr/lib/binfmt.d/qemu-aarch64.conf >/proc/sys/fs/binfmt_misc/register
fi
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"
[[ -z $folder ]] || mount --bind -o ro "$folder" "$root$folder"
exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 \
  ${foreign:+QEMU_CPU=neoverse-n1} "$@"
'

run_in_system() { # run_in_system FOLDER WITH COMMAND...
  local foreign=()
  if ! chroot "$1" /bin/true 2>/dev/null; then
    # A user namespace has handlers of its own for programs of other processors (Linux 6.7).
    need qemu-aarch64-static qemu-user-static
    foreign=(--user --map-root-user)
  fi
  [[ -z $2 ]] || mkdir -p "$1$2"
  unshare "${foreign[@]}" --mount --pid --net --fork --kill-child \
    bash -euc "$in_system" bash "$1" "$2" "${foreign[*]}" "${@:3}"
}

case "${1-}" in
  make) make_system "${@:2}" ;;
  run) run_in_system "${@:2}" ;;
  *)
    sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
