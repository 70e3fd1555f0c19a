#!/usr/bin/env bash
# Runs a command on emulated ARM: a Debian for arm64 under QEMU's user emulation, in which this
# checkout lies at its own path with an environment of ARM's wheels as its .venv. Files in /tmp, the
# network and the user (root) are shared with this machine; mounts and processes end with the command. Ctrl-C
# reaches the command, SIGTERM does not (unshare ignores it), SIGKILL ends all of it.
#
# Usage: tests/arm64/environment.sh [--python 3.11|3.13] COMMAND [ARGUMENT...]
#        tests/arm64/environment.sh [--python 3.11|3.13] --disk
#
# --disk makes what a whole emulated board starts from, and runs nothing: build/arm64/bookworm.disk/ with its disk
# (root.ext4), kernel, initrd, the public key of its ssh server and the private key of its user `pi`. With
# Python 3.13 it is trixie.disk/, whose kernel has pages of 16 KiB, as a Raspberry Pi 5's.
#
# The first call makes the environment (five minutes) in build/arm64, or where CSDF_EDGE_ARM64 says; later ones
# use it again, also after the requirements have changed. Packages come from the sources of this machine's
# apt and pip. Each call registers QEMU with the kernel if it is not registered yet. The registration ends with the command
# unless binfmt_misc is mounted: then it lasts until the next start, or `echo -1 > /proc/sys/fs/binfmt_misc/qemu-aarch64`.
set -euo pipefail

fail() { echo "tests/arm64/environment.sh: $1" >&2; exit 2; }

python=3.11
packages=()
in_system=python3,openssl,openssh-client,procps,iproute2
if [ "${1:-}" = --python ]; then python=$2; shift 2; fi
case $python in
    3.11) suite=bookworm kernel=linux-image-arm64 ;;
    3.13) suite=trixie kernel=linux-image-arm64-16k ;;
    *) fail "Python $python: give 3.11 or 3.13, which Debian has for arm64" ;;
esac
kind=
if [ "${1:-}" = --disk ]; then
    kind=.board
    packages=(qemu-system-arm e2fsprogs openssh-client rsync)
    in_system+=,python3-venv,systemd-sysv,dbus,openssh-server,rsync,sudo,$kernel
fi
[ $# -gt 0 ] || fail "which command should run? For example: $0 .venv/bin/pytest tests/nodes"
[ "$(id -u)" = 0 ] || fail "needs root, for mounts and for QEMU's registration with the kernel: call it by sudo"
# All mounts and processes that are started from here end with this process.
[ "${CSDF_EDGE_ARM64_APART:-}" ] || CSDF_EDGE_ARM64_APART=yes exec unshare --mount --pid --fork --kill-child --mount-proc "$0" --python "$python" "$@"
unset CSDF_EDGE_ARM64_APART

checkout=$(cd "$(dirname "$0")/../.." && pwd)
here=${CSDF_EDGE_ARM64:-$checkout/build/arm64}
system=$here/$suite$kind
venv=$here/$suite.venv
mkdir -p "$here"

install_packages() {
    local missing=()
    for package in qemu-user-static debootstrap debian-archive-keyring "${packages[@]}"; do
        dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] && return
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "${missing[@]}" >&2 ||
        fail "apt-get could not install ${missing[*]}: install them by hand (Debian's names)"
}

register_qemu() {
    local misc=/proc/sys/fs/binfmt_misc
    [ -e $misc/register ] || mount -t binfmt_misc binfmt_misc $misc 2>/dev/null ||
        fail "the kernel has no binfmt_misc, by which it runs ARM's programs: modprobe binfmt_misc, or use another kernel"
    [ -e $misc/qemu-aarch64 ] || cat /usr/lib/binfmt.d/qemu-aarch64.conf >$misc/register ||
        fail "QEMU could not be registered in $misc: is this a container without the right to?"
}

make_system() {
    [ -e "$system/.made" ] && return
    local mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)
    rm -rf "$system"
    # An initrd for QEMU's machine only is made in seconds, one for all boards in minutes.
    mkdir -p "$system/etc/initramfs-tools/conf.d" "$system/usr/share/initramfs-tools/modules.d" "$system/etc/dpkg/dpkg.cfg.d"
    echo force-unsafe-io >"$system/etc/dpkg/dpkg.cfg.d/quick"
    echo MODULES=list >"$system/etc/initramfs-tools/conf.d/modules"
    printf '%s\n' virtio_pci virtio_blk ext4 >"$system/usr/share/initramfs-tools/modules.d/board"
    debootstrap --arch=arm64 --variant=minbase --include="$in_system" \
        "$suite" "$system" "$mirror" >"$system.log" 2>&1 || fail "debootstrap failed: see $system.log"
    rm -f "$system"/var/cache/apt/archives/*.deb
    touch "$system/.made"
}

platforms=(--platform manylinux2014_aarch64)
for minor in $(seq 17 36); do platforms+=(--platform "manylinux_2_${minor}_aarch64"); done

# Prints the requirements of a file that hold on ARM, without their hashes.
needed_on_arm() {
    "$checkout/.venv/bin/python" - "$1" "$python" <<'PINS'
import sys
from packaging.requirements import Requirement
path, version = sys.argv[1:]
there = {"platform_machine": "aarch64", "python_version": version, "python_full_version": version + ".2"}
for line in open(path):
    if line[0].isspace():
        continue
    requirement = Requirement(line.rstrip("\\\n "))
    if requirement.marker is None or requirement.marker.evaluate(there):
        print(f"{requirement.name}{requirement.specifier}")
PINS
}

# Wheels are unpacked by this machine's pip, which is ten times faster than an emulated one.
unpack_wheels() {
    "$checkout/.venv/bin/python" -m pip install --quiet --no-deps --no-compile --python-version "$python" \
        "${platforms[@]}" --target "$2" --requirement "$1" >"$here/$suite.pip.log" 2>&1 ||
        fail "pip found no wheels of ARM for all of $1: see $here/$suite.pip.log"
}

# A board is at 10.35.0.$N, where N is the last byte of the address of its network interface. Its pip
# has the wheels of deploy/requirements/agent.txt, and no index. They are already unpacked in
# /opt/csdf-edge/prepared, an environment as `python3 -m venv` and `pip install` make it there in minutes.
make_disk() {
    local disk=$here/$suite.disk wheels=$system/usr/share/wheels pins=$checkout/deploy/requirements/agent.txt
    local prepared=/opt/csdf-edge/prepared
    cmp -s "$pins" "$disk/agent.txt" && return
    rm -rf "$disk" "$wheels" "$system$prepared"
    mkdir -p "$disk" "$wheels"
    needed_on_arm "$pins" >"$disk/pins.txt"
    "$checkout/.venv/bin/python" -m pip download --quiet --no-deps --only-binary :all: \
        --python-version "$python" "${platforms[@]}" --dest "$wheels" --requirement "$disk/pins.txt" >"$system.pip.log" 2>&1 ||
        fail "pip found no wheels of ARM for all of $pins: see $system.pip.log"
    chroot "$system" python3 -m venv "$prepared"
    unpack_wheels "$disk/pins.txt" "$system$prepared/lib/python$python/site-packages"
    chroot "$system" "$prepared/bin/python" -m compileall -q "$prepared" || true # some packages have files of older Pythons
    printf '[global]\nno-index = true\nfind-links = /usr/share/wheels\n' >"$system/etc/pip.conf"
    for number in 11 12; do
        printf '[Match]\nMACAddress=52:54:00:00:00:%02x\n[Network]\nAddress=10.35.0.%d/24\n' "$number" "$number" \
            >"$system/etc/systemd/network/$number.network"
    done
    echo "/dev/vda / ext4 errors=remount-ro 0 1" >"$system/etc/fstab"
    printf '127.0.0.1 localhost\n10.35.0.11 left\n10.35.0.12 right\n' >"$system/etc/hosts"
    chroot "$system" systemctl --quiet enable systemd-networkd ssh
    chroot "$system" useradd --create-home --shell /bin/bash pi || [ $? = 9 ]
    echo "pi ALL=(ALL) NOPASSWD: ALL" >"$system/etc/sudoers.d/pi"
    ssh-keygen -q -t ed25519 -N "" -C "" -f "$disk/pi"
    install -D --mode 644 "$disk/pi.pub" "$system/home/pi/.ssh/authorized_keys"
    cp "$system/etc/ssh/ssh_host_ed25519_key.pub" "$disk"
    cp "$system"/boot/vmlinuz-* "$disk/kernel"
    cp "$system"/boot/initrd.img-* "$disk/initrd"
    mke2fs -q -t ext4 -d "$system" "$disk/root.ext4" 6G
    cp "$pins" "$disk/agent.txt"
}

make_venv() {
    local pins=$checkout/requirements.lock site=$venv/lib/python$python/site-packages
    cmp -s "$pins" "$venv/requirements.lock" && return
    rm -rf "$venv"
    mkdir -p "$venv/bin" "$site"
    needed_on_arm "$pins" >"$venv/pins.txt"
    unpack_wheels "$venv/pins.txt" "$site"
    mv "$site"/bin/* "$venv/bin"
    ln -s "/usr/bin/python$python" "$venv/bin/python"
    ln -s python "$venv/bin/python3"
    echo "home = /usr/bin" >"$venv/pyvenv.cfg"
    for program in csdf-edge launch ga node-agent csdf; do cp "$checkout/.venv/bin/$program" "$venv/bin"; done
    cp -r "$checkout"/.venv/lib/python*/site-packages/csdf_edge-*.dist-info "$site"
    echo "$checkout" >"$site/csdf_edge.pth"
    cp "$pins" "$venv/requirements.lock"
}

# ONNX Runtime reads the processor from /proc/cpuinfo, where QEMU shows the host's: it ends with a segmentation fault.
write_cpuinfo() {
    for core in 0 1 2 3; do
        printf 'processor\t: %d\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd evtstrm crc32 cpuid\n' "$core"
        printf 'CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd08\nCPU revision\t: 3\n\n'
    done >"$here/cpuinfo"
}

{
    flock 9
    install_packages
    register_qemu
    [ -e "$checkout/.venv/.ready" ] || make -C "$checkout" setup >&2
    make_system
    if [ "$kind" ]; then make_disk; exit; fi
    make_venv
    write_cpuinfo
} 9>"$here/lock"

directory=$PWD
mount -t proc proc "$system/proc"
mount --bind "$here/cpuinfo" "$system/proc/cpuinfo"
for shared in /dev /sys /tmp; do mount --rbind $shared "$system$shared"; done
mkdir -p "$system$checkout"
mount --bind "$checkout" "$system$checkout"
mount --bind "$venv" "$system$checkout/.venv"
export QEMU_CPU=cortex-a72 PATH=$checkout/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec chroot "$system" /usr/bin/env --chdir="$directory" "$@"
