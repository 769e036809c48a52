# Sourced by the other scripts: images that were built once on this machine, for the
# tests of every clone. They are in the user's cache directory, in state directories of
# their own, and are built anew after a week, to get newer packages.
# shellcheck shell=bash
images_cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/modbox/images

# link_images FROM TO: makes the image store TO with the files of FROM, which are never
# changed but replaced, so what is pulled, built and removed in either is its own.
# A script that is killed leaves no half of it under its name.
link_images() {
	local new=$2.new
	mkdir -p "$(dirname "$2")"
	rm -rf "$new"
	cp -al "$1" "$new" 2>/dev/null || {
		rm -rf "$new"
		cp -a "$1" "$new" # on another file system
	}
	rm -rf "$new/tmp"
	find "$new" -name '*.lock' -delete
	mv "$new" "$2"
}

# tested_images are what the suites on real sandboxes use.
tested_images=(base code-exec data)

# cached_images NAME [IMAGE...]: builds images, by default base and code-exec, into the
# state directory NAME of the cache, unless it has them.
cached_images() {
	local state=$images_cache/$1 made=$images_cache/$1/made
	shift
	mkdir -p "$images_cache"
	(
		flock 9
		if [ -n "$(find "$made" -mtime +7 2>/dev/null)" ]; then rm -rf "$state"; fi
		if ! [ -e "$state" ] && [ "${state##*/}" != base ]; then link_images "$images_cache/base/images" "$state/images"; fi
		mkdir -p "$state" && chmod 700 "$state"
		[ -e "$made" ] || touch "$made"
		bin/modbox images build --state-dir "$state" --run-dir "$state/run" "$@"
	) 9>"$images_cache/lock"
}

# use_cached_images: gives this clone's state directory the images of the suites.
use_cached_images() {
	mkdir -p "$MODBOX_STATE_DIR" && chmod 700 "$MODBOX_STATE_DIR" || return
	(
		flock 8
		cached_images base "${tested_images[@]}" || exit
		if ! [ -e "$MODBOX_STATE_DIR/images" ]; then link_images "$images_cache/base/images" "$MODBOX_STATE_DIR/images"; fi
		bin/modbox images build "${tested_images[@]}"
	) 8>"${MODBOX_STATE_DIR%/*}/images.lock"
}
