# Runs as root inside the new root filesystem, with sh -eu. The recipe's build
# directory is at $BUILD.

useradd --uid 1000 --user-group --create-home --shell /bin/bash user
passwd --lock user >/dev/null
install -d -o user -g user -m 0755 /workspace /workspace/uploads \
	/home/user/.local /home/user/.local/bin /home/user/.local/lib /home/user/.cache
install -m 0440 "$BUILD/sudoers" /etc/sudoers.d/90-user

ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
chmod 0755 /usr/local/lib/node_modules/npm/bin/*-cli.js

# The tests of these packages are a fifth of their files, and no program imports them.
(cd /usr/lib/python3/dist-packages && find pandas scipy sklearn sympy -depth -type d -name tests -exec rm -rf {} +)

# Python checks compiled files against their sources by time, and the times here
# are rewritten; "unchecked" also saves the check at every start.
python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.13

# The first plot would search the fonts: seconds. The list is in the order of a set.
su user -c 'cd && PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 python3 -c "import matplotlib.pyplot"'
