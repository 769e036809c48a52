// Package eviction frees space on the disk of the state directory before it is full.
//
// Sandboxes are promised more disk than there is. When less than a limit is free, the [Manager]
// frees space in this order, a step at a time, and measures again after each: caches that can be
// rebuilt, and then the sandbox whose files grew most since the disk began to fill, which ends. It
// is not paused instead, because saving its memory would need space. A sandbox that did not grow
// ends only when almost nothing is free and no other grows, the largest first, one a minute.
//
// The package knows no sandboxes: a [Host] measures and ends them.
package eviction
