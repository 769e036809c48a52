# Runs as root inside every new root filesystem after the recipe's own script,
# with sh -eu: records what is in it and removes what belongs to this build only.

install -d -m 0755 /usr/share/modbox
{
	dpkg-query --show --showformat 'debian\t${Package}\t${Version}\t${Architecture}\n'
	cat "$BUILD/.npm-packages"
} >/usr/share/modbox/packages.tsv

# /tmp is not touched: mmdebstrap has its apt configuration there, and empties it later.
rm -rf /var/tmp/* /root/.cache /root/.npm /var/log/apt /var/cache/debconf/*-old
rm -f /etc/hostname /etc/.pwd.lock /etc/*- /var/lib/dpkg/*-old /var/lib/systemd/random-seed
rm -f /var/cache/ldconfig/aux-cache /etc/ssh/ssh_host_*_key*
find /var/log -type f -delete
: >/etc/machine-id
: >/etc/resolv.conf
