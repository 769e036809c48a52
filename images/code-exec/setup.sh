# Runs as root inside the new root filesystem, with sh -eu. The recipe's build
# directory is at $BUILD.

# Debian's useradd would copy /etc/skel; its dates are fine, the mail spool is not wanted.
useradd --uid 1000 --user-group --create-home --shell /bin/bash user
passwd --lock user >/dev/null
install -d -o user -g user -m 0755 /workspace /workspace/uploads \
	/home/user/.local /home/user/.local/bin /home/user/.local/lib
install -m 0440 "$BUILD/sudoers" /etc/sudoers.d/90-user

ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
chmod 0755 /usr/local/lib/node_modules/npm/bin/*-cli.js

# Python checks compiled files against their sources by time, and the times here
# are rewritten; "unchecked" also saves the check at every start.
python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.13

# The first "go run" would compile the standard library: seconds. A cache for
# what programs commonly import makes it the time of linking.
# Go knows its sources by their dates, so those become now what they will be.
find /usr/share/go-* -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
export HOME=/root GOCACHE=/var/cache/go-build GOFLAGS=-p=2
install -d -m 0777 "$GOCACHE"
cp "$BUILD/warm.go.txt" "$BUILD/warm.go"
go build -o /dev/null "$BUILD/warm.go"
# Each index entry of the cache ends with the time it was made, 20 characters wide.
find "$GOCACHE" -name '*-a' -exec sed -i -E "s/ [ 0-9]{20}\$/  ${SOURCE_DATE_EPOCH}000000000/" {} +
rm -f "$GOCACHE"/trim.txt "$GOCACHE"/testexpire.txt
rm -rf /root/.config /root/go
chmod -R a+rwX "$GOCACHE"
