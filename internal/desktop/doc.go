// Package desktop uses the screens of sandboxes as a person would: it takes pictures, moves the mouse,
// types, and lists windows.
//
// It runs programs of the image in the sandbox, as the image's user: xdotool, wmctrl, scrot, xrandr,
// xdg-open and ffmpeg, on the screen that the variable DISPLAY names. modbox/sandbox has them all.
// Their answers are not trusted.
package desktop
