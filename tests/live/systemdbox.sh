#!/bin/sh
# A systemd of its own, in namespaces of its own: nothing of this machine is seen that it could change.
#
#   systemdbox.sh out NAME ROOT CONSOLE    from systemdbox.py, which explains the environment it wants
#
# ROOT is an empty folder; the box's own tmpfs lies there, for the box alone. What is of the machine in it cannot be
# written: /usr is an overlay whose changes are in that tmpfs, everything else is mounted read-only. Exit code 77: this
# machine has not what that takes, and standard error says what.
set -eu
trap '[ $? = 0 ] || exit 77' EXIT
stage=$1 name=$2 root=$3 console=$4

if [ "$stage" = out ]; then
    # A control group below our own; in the box it is the root of all.
    group=$CGROUP2$(sed -n 's/^0:://p' /proc/self/cgroup)/$name
    mkdir "$group"
    echo $$ > "$group/cgroup.procs"
    export PIDS_OUTSIDE="$(readlink /proc/self/ns/pid)"
    exec unshare --fork --kill-child=KILL --pid --mount --uts --ipc --net --cgroup --propagation private \
        "$0" in "$name" "$root" "$console"
fi

[ "$$" = 1 ]
mount -t tmpfs -o mode=755,size=256m tmpfs "$root"
cd "$root"
mkdir -p usr etc/systemd/system etc/edgebroker dev proc sys run tmp var/lib var/log var/tmp home root opt .old .above .work
mkdir opt/python opt/packages opt/edgebroker opt/bridge opt/deploy
chmod 1777 tmp var/tmp
chmod 700 root
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$folder"; done

# The program as after an installation: /usr/bin/edgebroker, and nothing of it in somebody's home.
mkdir .above/bin
cat > .above/bin/edgebroker <<'END'
#!/bin/sh
LD_LIBRARY_PATH=/opt/python/lib exec /opt/python/bin/PYTHON -I -c '
import sys
sys.path[:0] = ["/opt/edgebroker", "/opt/bridge", "/opt/packages"]
sys.argv[0] = "edgebroker"
from edgebroker.cli import main
main()' "$@"
END
sed -i "s/PYTHON/$PYTHON/" .above/bin/edgebroker
chmod 755 .above/bin/edgebroker
mount -t overlay -o lowerdir=/usr,upperdir=.above,workdir=.work overlay usr
while read -r folder from; do
    mount --bind "$from" "opt/$folder"
    mount -o remount,bind,ro,nosuid "opt/$folder"
done <<END
python $PYTHON_PREFIX
packages $PACKAGES
edgebroker $EDGEBROKER
bridge $BRIDGE
deploy $DEPLOY
END

# /dev has to be a mount of its own: systemd mounts the kernel's, which the machine shares, where there is none.
mount -t tmpfs -o mode=755,size=64k tmpfs dev
mkdir dev/pts dev/shm
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
touch dev/console
mount --bind "$console" dev/console
mount -t tmpfs -o mode=1777,size=16m tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=755,size=64m tmpfs run
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
if [ -e proc/sysrq-trigger ]; then mount --bind /dev/null proc/sysrq-trigger; fi
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup

echo 'root:x:0:0::/root:/bin/sh
nobody:x:65534:65534::/:/bin/false
edgebroker:x:990:990::/:/bin/false' > etc/passwd
echo 'root:x:0:
nogroup:x:65534:
systemd-journal:x:999:
edgebroker:x:990:' > etc/group
echo '127.0.0.1 localhost' > etc/hosts
echo box > etc/hostname
echo 0123456789abcdef0123456789abcdef > etc/machine-id
: > etc/fstab
cp "$UNITS/sysinit.target" "$UNITS/basic.target" "$UNITS/multi-user.target" "$UNITS/sockets.target" \
    "$UNITS/slices.target" "$UNITS/paths.target" "$UNITS/timers.target" "$UNITS/network.target" \
    "$UNITS/time-sync.target" "$UNITS/shutdown.target" "$UNITS/umount.target" "$UNITS/systemd-journald.service" \
    "$UNITS/systemd-journald.socket" "$UNITS/systemd-journald-dev-log.socket" etc/systemd/system
mkdir etc/systemd/system/sysinit.target.wants
ln -s ../systemd-journald.service etc/systemd/system/sysinit.target.wants

pivot_root . .old
cd /
umount -l /.old
# Once more, before it has power over processes: ours are not those of the machine.
[ "$(readlink /proc/1/ns/pid)" != "$PIDS_OUTSIDE" ]
[ ! -e /.old/usr ]
trap - EXIT
exec setpriv --bounding-set=-sys_boot,-sys_time,-sys_module,-sys_rawio,-syslog,-mac_admin,-mac_override \
    env -i PATH=/usr/sbin:/usr/bin container=lxc SYSTEMD_UNIT_PATH=/etc/systemd/system SYSTEMD_GENERATOR_PATH=/none \
    /lib/systemd/systemd --system --unit=multi-user.target --log-target=console --show-status=no
