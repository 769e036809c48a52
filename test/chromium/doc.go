// Package chromium tests boxes and sandboxes of modbox/chromium on real gVisor: their programs start before
// they have a sandbox, in the pool and in memory templates.
package chromium
