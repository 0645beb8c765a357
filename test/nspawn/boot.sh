#!/bin/sh
# Boots a real systemd from this machine's own root, through an overlay that is
# gone with the process. Run by this package, as root, in a mount namespace and
# a PID namespace of its own:
#
#   boot.sh STAGE SHARE NAME
#
# STAGE is a folder laid over the root, SHARE one that is bound to /e2e, NAME the
# container's name. The process becomes systemd-nspawn.
set -eu

stage=$1
share=$2
name=$3

# systemd-nspawn refuses to work on a /run that is on a disk.
mount -t tmpfs tmpfs /run
mkdir /run/e2e
mount -t tmpfs tmpfs /run/e2e
cd /run/e2e
mkdir up work root
mount -t overlay overlay -o lowerdir=/,upperdir=up,workdir=work root

cp -a "$stage/." root/
# A machine of its own, so that its journals are its own too.
tr -d - </proc/sys/kernel/random/uuid >root/etc/machine-id
rm -rf root/var/log/journal root/var/lib/startupd
mkdir root/var/log/journal root/e2e
chgrp systemd-journal root/var/log/journal
chmod 2755 root/var/log/journal

# A group of its own in every hierarchy that systemd uses: two containers at
# once must not see each other's units.
for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
	if [ -e "$hierarchy/cgroup.procs" ]; then
		mkdir -p "$hierarchy/startupd-$name"
		echo $$ >"$hierarchy/startupd-$name/cgroup.procs"
	fi
done

exec systemd-nspawn --quiet -D root -b --machine="$name" --register=no --keep-unit --private-network \
	--console=pipe --bind="$share:/e2e" -- systemd.unit=e2e.target systemd.show_status=no
