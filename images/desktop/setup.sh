# Runs as root inside the new root filesystem, with sh -eu. The recipe's build
# directory is at $BUILD.

useradd --uid 1000 --user-group --create-home --shell /bin/bash user
passwd --lock user >/dev/null
install -m 0440 "$BUILD/sudoers" /etc/sudoers.d/90-user
install -m 0644 "$BUILD/chromium-flags" /etc/chromium.d/modbox
chmod 0755 /opt/noVNC/utils/novnc_proxy
update-alternatives --install /usr/bin/x-www-browser x-www-browser /usr/bin/chromium 100 >/dev/null
# What opens pages of the internet; desktop-file-utils has the programs for files.
sed -i 's/^WebBrowser=.*/WebBrowser=chromium/' /etc/xdg/xfce4/helpers.rc

# Python checks compiled files against their sources by time, and the times here
# are rewritten; "unchecked" also saves the check at every start.
python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.13
