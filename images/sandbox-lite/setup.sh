# Runs as root inside the new root filesystem, with sh -eu. The recipe's build
# directory is at $BUILD.

useradd --uid 1000 --user-group --create-home --shell /bin/bash user
passwd --lock user >/dev/null
install -d -o user -g user -m 0755 /workspace /workspace/uploads \
	/home/user/.local /home/user/.local/bin /home/user/.local/lib /var/log/sandbox
install -m 0440 "$BUILD/sudoers" /etc/sudoers.d/90-user

ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
chmod 0755 /usr/local/lib/node_modules/npm/bin/*-cli.js

# The build of modbox has put its program here.
if ! [ -e "$BUILD/modbox-front.gz" ]; then
	echo "this modbox was built without its program modbox-front: run \"make build\"" >&2
	exit 1
fi
gzip -dc "$BUILD/modbox-front.gz" >/usr/local/bin/modbox-front
chmod 0755 /usr/local/bin/modbox-front

# Python checks compiled files against their sources by time, and the times here
# are rewritten; "unchecked" also saves the check at every start.
python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.13
