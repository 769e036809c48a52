# Runs as root inside the new root filesystem, with sh -eu. The recipe's build
# directory is at $BUILD.

useradd --uid 1000 --user-group --create-home --shell /bin/bash user
passwd --lock user >/dev/null
install -d -o user -g user -m 0755 /workspace /workspace/uploads /home/user/browser /var/log/browser
install -m 0755 "$BUILD/programs" "$BUILD/run-chromium" "$BUILD/run-vnc" /usr/local/bin

# What nginx was built to use; here it runs as an ordinary user.
chown -R user:user /var/lib/nginx /var/log/nginx

# Python checks compiled files against their sources by time, and the times here
# are rewritten; "unchecked" also saves the check at every start.
python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.13
