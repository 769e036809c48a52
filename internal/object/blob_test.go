package object

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// TestBlobsAreReadAFewAtATime: of many blobs so many are in memory as there are slots, also of several calls together, and no other
// name is taken from the list.
func TestBlobsAreReadAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const blobs, calls = 1000, 2
		s := &Store{slots: make(chan struct{}, parallel)}
		var mu sync.Mutex
		var listed, reading, read int
		names := func(yield func(int, Name) bool) {
			for i := range blobs {
				mu.Lock()
				listed++
				mu.Unlock()
				if !yield(i, Name{}) {
					return
				}
			}
		}
		next := make(chan struct{})
		var group sync.WaitGroup
		for range calls {
			group.Go(func() {
				err := s.each(t.Context(), names, func(context.Context, int, Name) error {
					mu.Lock()
					reading++
					mu.Unlock()
					<-next
					mu.Lock()
					defer mu.Unlock()
					reading--
					read++
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		for n := range calls * blobs {
			synctest.Wait()
			mu.Lock()
			state := fmt.Sprintf("%d are being read, %d were read, %d listed", reading, read, listed)
			ok := reading == min(parallel, calls*blobs-n) && read == n && listed <= n+parallel+calls
			mu.Unlock()
			if !ok {
				t.Errorf("of %d blobs %s", calls*blobs, state)
				close(next)
				break
			}
			next <- struct{}{}
		}
		group.Wait()
	})
}
