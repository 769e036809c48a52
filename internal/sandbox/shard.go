package sandbox

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Shard is a part of all sandboxes. A sandbox stays in its shard, which is the last byte of its ID: of a new ID that is random.
type Shard uint8

// Shard returns the shard of a sandbox.
func (id ID) Shard() Shard {
	if len(id) < 2 {
		return 0
	}
	n, err := strconv.ParseUint(string(id[len(id)-2:]), 16, 8)
	if err != nil {
		return 0 // no ID of a sandbox
	}
	return Shard(n)
}

// Range returns the range of a shard: the last digit but one of the IDs of its sandboxes.
func (s Shard) Range() int { return int(s >> 4) }

// RangeCount is the number of ranges of shards. A server owns whole ranges.
const RangeCount = 16

// Ranges is a set of ranges of shards: range n is in it if bit n is set.
type Ranges uint16

// AllRanges has every sandbox.
const AllRanges Ranges = 1<<RangeCount - 1

// RangesFrom returns the ranges from first to last.
func RangesFrom(first, last int) Ranges {
	return AllRanges >> (RangeCount - 1 - last) &^ (1<<first - 1)
}

// Parts returns the parts of all ranges for n owners: 1, 2, 4, 8 or 16.
func Parts(n int) []Ranges {
	parts, each := make([]Ranges, n), RangeCount/n
	for i := range parts {
		parts[i] = RangesFrom(i*each, (i+1)*each-1)
	}
	return parts
}

// Has reports whether a sandbox is in one of the ranges.
func (r Ranges) Has(id ID) bool { return r.HasRange(id.Shard().Range()) }

// HasRange reports whether range n is in the set.
func (r Ranges) HasRange(n int) bool { return r&(1<<n) != 0 }

// First returns the first range of a set that is not empty.
func (r Ranges) First() int { return bits.TrailingZeros16(uint16(r)) }

// Digits returns the digits of the ranges in IDs.
func (r Ranges) Digits() string {
	var digits strings.Builder
	for n := range RangeCount {
		if r.HasRange(n) {
			fmt.Fprintf(&digits, "%x", n)
		}
	}
	return digits.String()
}

// Ownership is the set of the ranges that a server owns, which may change. A nil Ownership has all ranges.
type Ownership struct{ ranges atomic.Uint32 }

// Own returns the ownership of ranges.
func Own(r Ranges) *Ownership {
	var o Ownership
	o.Set(r)
	return &o
}

// Ranges returns the ranges of now.
func (o *Ownership) Ranges() Ranges {
	if o == nil {
		return AllRanges
	}
	return Ranges(o.ranges.Load()) //nolint:gosec // Set has stored it
}

// Set replaces the ranges.
func (o *Ownership) Set(r Ranges) { o.ranges.Store(uint32(r)) }

// Owns reports whether the server owns the shard of a sandbox, or of something else that it gave an ID of NewID.
func (o *Ownership) Owns(id ID) bool { return o.Ranges().Has(id) }

// Part returns a name that no other server has at the same time: the digit of the first range, or "" for the server of all ranges.
func (o *Ownership) Part() string {
	if r := o.Ranges(); r != AllRanges && r != 0 {
		return strconv.FormatInt(int64(r.First()), 16)
	}
	return ""
}

// Sweeps reports whether the server removes an entry of a directory in which each server has a directory with the name of its part. A server removes
// the directories of earlier servers whose ranges it owns, and the primary removes all entries with other names. The server of all ranges has
// everything in the directory itself.
func (o *Ownership) Sweeps(name string) bool {
	part := o.Part()
	if part == "" || len(name) != 1 || !strings.Contains(AllRanges.Digits(), name) {
		return o.Primary()
	}
	return name != part && strings.Contains(o.Ranges().Digits(), name)
}

// Primary reports whether the server owns the first range. The primary does the work that belongs to no sandbox: a single server does it.
func (o *Ownership) Primary() bool { return o.Ranges().HasRange(0) }

// Check returns an error unless the server owns the shard of a sandbox. Errors: Unavailable.
func (o *Ownership) Check(id ID) error {
	if o.Ranges().Has(id) {
		return nil
	}
	return NewElsewhere(id)
}

// CheckPrimary returns an error unless the server is the primary. Errors: Unavailable, with the reason [Elsewhere].
func (o *Ownership) CheckPrimary() error {
	if o.Primary() {
		return nil
	}
	err := Wrap(Unavailable, Elsewhere{0}, "another server does this; try again")
	err.RetryAfter = elsewhereRetry
	return err
}

// elsewhereRetry is the time after which a caller tries again: a takeover takes some seconds.
const elsewhereRetry = 2 * time.Second

// SomeRange is the range of [Elsewhere] if it is not known which server has an object.
const SomeRange = -1

// Elsewhere is the reason of errors about objects that another server has, as a rule in its memory.
type Elsewhere struct {
	// Range is the range of the shard of the sandbox, or SomeRange.
	Range int
}

// Error implements error.
func (e Elsewhere) Error() string {
	if e.Range == SomeRange {
		return "another server may have it"
	}
	return fmt.Sprintf("range %x is another server's", e.Range)
}

// Somewhere returns an error of code [NotFound] about an object that another server may have.
func Somewhere(format string, args ...any) *Error {
	return Wrap(NotFound, Elsewhere{SomeRange}, format, args...)
}

// NewElsewhere returns an error of code [Unavailable] with the reason [Elsewhere].
func NewElsewhere(id ID) *Error {
	err := Wrap(Unavailable, Elsewhere{id.Shard().Range()}, "another server works on sandbox %s; try again", id)
	err.RetryAfter = elsewhereRetry
	return err
}

// NewID returns a new ID in a shard of the server.
func (o *Ownership) NewID() ID { return newIDIn(o.Ranges()) }

// newIDIn returns a new ID in one of the ranges, each with the same chance.
func newIDIn(r Ranges) ID {
	id, digits := NewID(), r.Digits()
	if r == AllRanges || digits == "" {
		return id
	}
	n := len(id) - 2
	return id[:n] + ID(digits[rand.IntN(len(digits))]) + id[n+1:] //nolint:gosec // the rest of an ID is random enough
}
