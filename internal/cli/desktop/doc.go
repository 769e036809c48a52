// Package desktop has the commands that use the screens of sandboxes.
package desktop
