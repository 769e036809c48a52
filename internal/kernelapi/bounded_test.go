package kernelapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/kernelapi"
)

// members returns n members of an object.
func members(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"%d":0`, i))
	}
	return strings.Join(all, ",")
}

func TestBoundedAnswers(t *testing.T) {
	list := func(element string, n int) string { return strings.TrimSuffix(strings.Repeat(element+",", n), ",") }
	for name, tc := range map[string]struct {
		text string
		into any
		ok   bool
	}{
		"formats":           {`{"data":{` + members(kernelapi.MaxFormats) + `}}`, new(kernelapi.Event), true},
		"too many formats":  {`{"data":{` + members(kernelapi.MaxFormats+1) + `}}`, new(kernelapi.Event), false},
		"one format often":  {`{"data":{` + list(`"a":0`, kernelapi.MaxFormats+1) + `}}`, new(kernelapi.Event), false},
		"lines":             {`{"traceback":[` + list(`""`, kernelapi.MaxLines) + `]}`, new(kernelapi.Event), true},
		"too many lines":    {`{"traceback":[` + list(`""`, kernelapi.MaxLines+1) + `]}`, new(kernelapi.Event), false},
		"too many omitted":  {`{"omitted":[` + list(`""`, kernelapi.MaxLines+1) + `]}`, new(kernelapi.Event), false},
		"contexts":          {`[` + list(`{}`, kernelapi.MaxContexts) + `]`, new(kernelapi.Contexts), true},
		"too many contexts": {`[` + list(`{}`, kernelapi.MaxContexts+1) + `]`, new(kernelapi.Contexts), false},
		"no object":         {`{"data":[]}`, new(kernelapi.Event), false},
		"no array":          {`{"traceback":{}}`, new(kernelapi.Event), false},
	} {
		if err := json.Unmarshal([]byte(tc.text), tc.into); (err == nil) != tc.ok {
			t.Errorf("%s: %v, want success: %v", name, err, tc.ok)
		}
	}
	want := kernelapi.Event{Data: kernelapi.Formats{"text/plain": json.RawMessage(`"1"`), "application/json": json.RawMessage(`[1,{"a":2}]`)}, Traceback: kernelapi.Lines{"a", "b"}}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got kernelapi.Event
	if err := json.Unmarshal(text, &got); err != nil || !cmp.Equal(want, got) {
		t.Errorf("decoded again: %v %s", err, cmp.Diff(want, got))
	}
}
