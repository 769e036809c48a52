package background

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestLonger(t *testing.T) {
	why := errors.New("why")
	ctx, end := context.WithCancelCause(t.Context())
	long, cancelLong := Longer(ctx, time.Hour)
	short, cancelShort := Longer(ctx, 0)
	defer cancelShort()
	if long.Err() != nil || short.Err() != nil {
		t.Error("a context has ended before its parent")
	}
	end(why)
	<-short.Done()
	if context.Cause(short) != why {
		t.Errorf("the context has ended because of %v", context.Cause(short))
	}
	if long.Err() != nil {
		t.Error("the longer context has ended with its parent")
	}
	cancelLong()
	if long.Err() == nil {
		t.Error("the context goes on after its end")
	}
}
