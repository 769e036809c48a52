// Package checkpoint keeps the saved states of sandboxes: their files in a directory, the
// [Store], and their rows, the [Records]. It knows which states are complete and which can
// be restored; package lifecycle decides when one is made, restored and removed.
//
// A state has a row before its files appear: a checkpoint is recorded as begun, and a pause
// on the row of its sandbox. Files that no row has are therefore unfinished work, or belong
// to another database.
package checkpoint
