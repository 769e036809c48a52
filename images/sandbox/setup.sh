# Runs as root inside the new root filesystem, with sh -eu, after the script of
# modbox/sandbox-lite. The recipe's build directory is at $BUILD.

install -d -o user -g user -m 0755 /home/user/browser
install -m 0755 "$BUILD/run-chromium" "$BUILD/run-screen" "$BUILD/run-windows" /usr/local/bin
install -m 0644 "$BUILD/chromium-flags" /etc/chromium.d/modbox
update-alternatives --install /usr/bin/x-www-browser x-www-browser /usr/bin/chromium 100 >/dev/null

# Again, with the modules that came with these packages.
python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3

# A font with more than Latin, in a size that can be read on a picture.
printf '%s\n' 'XTerm*faceName: DejaVu Sans Mono' 'XTerm*faceSize: 11' 'XTerm*background: #1b1e24' 'XTerm*foreground: #e6e9ef' \
	'XTerm*cursorColor: #e6e9ef' 'XTerm*internalBorder: 8' 'XTerm*scrollBar: false' >>/etc/X11/app-defaults/XTerm
