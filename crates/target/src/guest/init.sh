# The first process of a guest. It starts nothing that the host has installed, neither udev nor anything of systemd,
# and modules come from the kernel's own folder, without the host's settings for them: a guest is the same on every
# host.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin:/usr/local/bin HOME=/root XDG_RUNTIME_DIR=/run/user/0 XDG_STATE_HOME=/run/user/0/state
cd /
mount -t proc -o nosuid,nodev,noexec proc /proc

# Folders that programs write to are overlays, or empty: nothing reaches the host.
layers= overlays= settings=
for folder in etc lib home opt srv usr var tmp; do
    [ -d "/$folder" ] || continue
    at=/run/overlay/$folder
    layers="$layers $at/upper $at/work"
    overlays="$overlays
overlay-$folder /$folder overlay xino=off,lowerdir=/$folder,upperdir=$at/upper,workdir=$at/work"
done
for folder in etc/modprobe.d lib/modprobe.d usr/local/lib/modprobe.d; do
    [ ! -d "/$folder" ] || settings="$settings
settings /$folder tmpfs defaults"
done
mkdir -p $layers "$XDG_RUNTIME_DIR" /run/modules

# By one mount(8): where instructions are emulated, each start of a program takes long.
cat >/run/fstab <<END
sys        /sys                 sysfs      nosuid,nodev,noexec
dev        /dev                 devtmpfs   nosuid,noexec
pts        /dev/pts             devpts     nosuid,noexec,x-mount.mkdir
shm        /dev/shm             tmpfs      nosuid,nodev,x-mount.mkdir
configfs   /sys/kernel/config   configfs   defaults
debugfs    /sys/kernel/debug    debugfs    defaults
tracefs    /sys/kernel/tracing  tracefs    defaults
securityfs /sys/kernel/security securityfs defaults
cgroup2    /sys/fs/cgroup       cgroup2    defaults
$overlays
log        /var/log             tmpfs      nosuid,nodev,x-mount.mkdir
tmp        /var/tmp             tmpfs      nosuid,nodev,x-mount.mkdir
cache      /var/cache           tmpfs      nosuid,nodev,x-mount.mkdir
modules    /lib/modules         tmpfs      x-mount.mkdir
$settings
END
mount -a -T /run/fstab
if [ -L /run/bpfcost/modules ]; then
    mount -t 9p -o "ro,cache=loose,$TRANSPORT" virtme.initmount1 /run/modules
    ln -s /run/modules "/lib/modules/$(uname -r)"
fi
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
echo bpfcost >/proc/sys/kernel/hostname
# It may have booted long ago.
date -s "@$NOW" >/dev/null
ip link set dev lo up

setsid sh /run/bpfcost/start </dev/console >/dev/console 2>&1
# What it had to say is said. Without this the kernel panics, since its first process ends.
echo b >/proc/sysrq-trigger
