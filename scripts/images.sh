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
		cp -a "$1" "$new" || return # on another file system
	}
	rm -rf "$new/tmp"
	find "$new" -name '*.lock' -delete
	mv "$new" "$2"
}

# lend_images FROM TO: makes the image store TO for one server, with symbolic links to the root filesystems of FROM. A
# hard link would change their inodes, and so end the record that they are undamaged: every server that starts afterwards
# would read them. All stores of this clone that are made so have the same records. Other clones may replace what is in the cache, so this
# clone keeps hard links to its root filesystems, made once.
# shellcheck disable=SC2154 # scripts/env.sh sets home
lend_images() {
	local kept=$home/images part root own
	mkdir -p "$kept/verified" "$2/images" || return
	find "$kept" -name '*.erofs' -links 1 -ctime +8 -delete # replaced in the cache, which is built anew after a week
	for part in "$1"/*; do
		case ${part##*/} in images | tmp | verified) continue ;; esac
		cp -al "$part" "$2/" 2>/dev/null || cp -a "$part" "$2/" || return # on another file system
	done
	find "$2" -name '*.lock' -delete
	ln -s "$(realpath "$kept/verified")" "$2/verified" || return
	for root in "$1"/images/*.erofs; do
		own=$kept/${root##*/}
		if ! [ "$root" -ef "$own" ]; then
			# On another file system it is a copy. Sandboxes may have the file open.
			ln -f "$root" "$own" 2>/dev/null || [ "$(stat -c %s.%Y "$root")" = "$(stat -c %s.%Y "$own" 2>/dev/null)" ] ||
				{ cp -p "$root" "$own.$$" && mv "$own.$$" "$own"; } || return
		fi
		ln -s "$own" "$2/images/" || return
	done
}

# tested_images are what the suites on real sandboxes use.
tested_images=(base code-exec data)

# cached_images NAME [IMAGE...]: builds images, by default base and code-exec, into the
# state directory NAME of the cache, unless it has them.
# Each state directory has a lock of its own: the suites that use the others do not wait for a build of minutes.
cached_images() {
	local name=$1 state=$images_cache/$1 made=$images_cache/$1/made
	shift
	mkdir -p "$images_cache"
	(
		flock 9
		if [ -n "$(find "$made" -mtime +7 2>/dev/null)" ]; then rm -rf "$state"; fi
		if ! [ -e "$state" ]; then
			case $name in
			base) ;;
			all) link_cached agentuity "$state/images" ;; # which has some of them
			*) link_cached base "$state/images" ;;
			esac
		fi
		mkdir -p "$state" && chmod 700 "$state"
		[ -e "$made" ] || touch "$made"
		bin/modbox images build --state-dir "$state" --run-dir "$state/run" "$@"
	) 9>"$images_cache/$name.lock"
}

# link_cached NAME TO: makes the image store TO with the images of the state directory NAME of the cache, which nothing replaces meanwhile.
link_cached() {
	(
		flock -s 7
		link_images "$images_cache/$1/images" "$2"
	) 7>"$images_cache/$1.lock"
}

# use_cached_images: gives this clone's state directory the images of the suites.
use_cached_images() {
	mkdir -p "$MODBOX_STATE_DIR" && chmod 700 "$MODBOX_STATE_DIR" || return
	(
		flock 8
		cached_images base "${tested_images[@]}" || exit
		if ! [ -e "$MODBOX_STATE_DIR/images" ]; then link_cached base "$MODBOX_STATE_DIR/images"; fi
		bin/modbox images build "${tested_images[@]}"
	) 8>"${MODBOX_STATE_DIR%/*}/images.lock"
}
