#!/bin/sh
# Puts the simulated hardware where the driver and the tools look for it. Run by lab-gpu.service at every boot of the node, and by the lab
# after a change: `setup` (mount what is not mounted yet), `reload` (the driver anew as well), `remove`.
set -eu
here=/var/lib/lab-gpu
state=$here/state

seen() { mountpoint -q "$1"; }

# /sys is a read-only tmpfs here, with mounts of the real one in it: new folders can be made in it.
open_sys() { mount -o remount,rw /sys; }
close_sys() { mount -o remount,ro /sys; }

bind() { # what, where: a folder or a file
    seen "$2" && return 0
    if [ -d "$1" ]; then mkdir -p "$2"; else mkdir -p "$(dirname "$2")"; [ -e "$2" ] || : > "$2"; fi
    mount --bind "$1" "$2"
}

fresh() { # the driver's files are made anew with every load, as the kernel makes them
    mkdir -p "$here/live/proc-driver" "$here/live/sys-module"
    rm -rf "$here/live/proc-driver/nvidia" "$here/live/sys-module/nvidia"
    [ ! -d "$here/files/proc-driver/nvidia" ] || cp -r "$here/files/proc-driver/nvidia" "$here/live/proc-driver/nvidia"
    [ ! -d "$here/files/devicetree" ] || [ -d "$here/live/devicetree" ] || cp -r "$here/files/devicetree" "$here/live/devicetree"
    [ ! -d "$here/files/sys-module/nvidia" ] || cp -r "$here/files/sys-module/nvidia" "$here/live/sys-module/nvidia"
}

board() { # what the firmware and nvpmodel's service do while a Jetson boots
    [ -d "$here/files/sys" ] || return 0
    rm -rf "$here/live/sys" # nothing of it is mounted yet: what was pinned before the boot is gone
    cp -r "$here/files/sys" "$here/live/sys"
    /usr/bin/python3 -E /usr/lib/lab-gpu/lab_board.py
}

setup() {
    [ -d "$here/live/sys-module" ] || fresh
    [ ! -e "$state" ] || bind "$state" /dev/nvidiactl
    bind "$here/live/proc-driver" /proc/driver
    open_sys
    bind "$here/live/sys-module" /sys/module
    [ ! -d "$here/live/devicetree" ] || bind "$here/live/devicetree" /sys/firmware/devicetree/base
    close_sys
    # A Jetson's own trees lie over those of this machine, which stay visible beside them.
    for part in bus class devices; do
        [ -d "$here/live/sys/$part" ] || continue
        seen "$here/live/over/$part" || overlay "$part"
    done
    [ ! -e "$here/files/binds" ] || while read -r place; do bind "$here/live/sys/$place" "/sys/$place"; done < "$here/files/binds"
}

overlay() {
    mkdir -p "$here/live/over/$1"
    mount --bind "$here/live/over/$1" "$here/live/over/$1"
    mount -t overlay lab-board -o "ro,lowerdir=$here/live/sys/$1:/sys/$1" "/sys/$1"
}

remove() {
    [ ! -e "$here/files/binds" ] || while read -r place; do ! seen "/sys/$place" || umount -l "/sys/$place"; done < "$here/files/binds"
    for place in bus class devices; do
        if seen "$here/live/over/$place"; then umount "/sys/$place" || umount -l "/sys/$place"; umount "$here/live/over/$place"; fi
    done
    for place in /sys/firmware/devicetree/base /sys/module /proc/driver; do
        while seen "$place" && [ -e "$here" ]; do umount "$place" || umount -l "$place"; done
    done
    if seen /dev/nvidiactl; then umount /dev/nvidiactl; fi
    rm -f /dev/nvidiactl
    open_sys
    rmdir /sys/module /sys/firmware/devicetree/base /sys/firmware/devicetree /sys/firmware 2> /dev/null || :
    close_sys
}

case ${1:-boot} in
    boot) fresh; [ ! -e "$state" ] || /usr/lib/lab-gpu/load "$state"; board; setup ;;
    reload) fresh; [ ! -e "$state" ] || /usr/lib/lab-gpu/load "$state"; setup ;;
    setup) setup ;;
    remove) remove ;;
    *) echo "usage: setup boot|setup|reload|remove" >&2; exit 2 ;;
esac
