package broadcast_test

import (
	"testing"

	"github.com/modbox/modbox/internal/broadcast"
)

// TestSendWakesAll: everybody who waits is woken once, and later waits are for later changes.
func TestSendWakesAll(t *testing.T) {
	var b broadcast.Broadcast
	b.Send() // nobody waits
	first, second := b.Wait(), b.Wait()
	select {
	case <-first:
		t.Fatal("woken by an earlier change")
	default:
	}
	b.Send()
	<-first
	<-second
	select {
	case <-b.Wait():
		t.Error("a later wait is woken by an earlier change")
	default:
	}
}
