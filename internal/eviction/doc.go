// Package eviction frees space on the disk of the state directory before there is none.
//
// Sandboxes are promised more disk than there is. When less than a limit is free, the
// [Manager] frees space in this order, one step at a time, and looks again after each:
// caches that can be made again, and then the sandbox whose files grew most since the
// disk began to fill, which ends. A sandbox is not paused for that: saving its memory
// would take space that is missing. A sandbox that did not grow ends only when next to
// nothing is free and no other grows, the largest first, one a minute.
//
// The package knows no sandboxes: a [Host] measures and ends them.
package eviction
