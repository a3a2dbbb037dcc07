# What a guest runs before it has files: busybox, in place of virtme-ng's own script in that initramfs. The host's files
# are cached, so that a program that was started once is not fetched by 9p again: half of the time to the first
# measurement. They do not change in a way that a guest could see; what is shared for writing is not cached.
log() { :; }
. /modules/load_all.sh
# From here on it may be another guest, which goes on where this one was; the host says when.
echo "$READY" >/dev/console
read -r _ </dev/console
mount -n -t 9p -o "ro,cache=loose,$TRANSPORT" /dev/root /newroot
mount -n -t tmpfs -o mode=755 run /newroot/run
mkdir "/newroot$SHARED"
mount -n -t 9p -o "$TRANSPORT" virtme.initmount0 "/newroot$SHARED"
exec switch_root /newroot /bin/sh "$SHARED/init"
