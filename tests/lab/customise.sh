#!/bin/sh
# Turns a fresh Debian tree ($1) into what every lab node starts from. Part of the image's fingerprint: a change here makes a new image.
set -eu
root=$1

# Nodes have no way out of the machine: what apt on a node may ask is what a test gives it.
: > "$root/etc/apt/sources.list"
rm -rf "$root"/etc/apt/sources.list.d/* "$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/var/lib/apt/lists/*
: > "$root/etc/resolv.conf"

# Each node has an identity of its own.
rm -f "$root"/etc/ssh/ssh_host_*
: > "$root/etc/machine-id"
rm -f "$root/var/lib/dbus/machine-id"
echo node > "$root/etc/hostname"
echo 'LANG=C.UTF-8' > "$root/etc/default/locale"

mkdir -p "$root/etc/ssh/sshd_config.d"
cat > "$root/etc/ssh/sshd_config.d/10-lab.conf" <<'SSHD'
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UseDNS no
SSHD

user() { # name, line for sudo; '*' is no password at all, yet not a locked account
    chroot "$root" useradd --create-home --shell /bin/bash "$1"
    chroot "$root" usermod --password '*' "$1"
    install -d -m 0755 "$root/etc/sudoers.d"
    printf '%s %s\n' "$1" "$2" > "$root/etc/sudoers.d/$1"
    chmod 0440 "$root/etc/sudoers.d/$1"
}
user ops 'ALL=(ALL:ALL) NOPASSWD: ALL'
user carol 'ALL=(ALL:ALL) ALL'
echo 'carol:herd-lab' | chroot "$root" chpasswd

# Nothing may work in the background while something is measured; no console is there to log in on.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer e2scrub_reap.service \
    systemd-networkd-wait-online.service haproxy.service rsync.service; do
    chroot "$root" systemctl disable --quiet "$unit" 2> /dev/null || :
done
chroot "$root" systemctl mask --quiet console-getty.service getty@.service
chroot "$root" systemctl enable --quiet systemd-networkd.service ssh.service
