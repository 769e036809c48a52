package otlp

import (
	"context"
	"encoding"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
)

const (
	// entryBytesMax bounds the text of an entry with all its attributes, in bytes; each attribute counts numberBytes
	// beside its texts.
	entryBytesMax, numberBytes = 16 << 10, 8
	// severityInfo is the severity of an entry of [slog.LevelInfo]; severities and the levels of slog have the same steps.
	severityInfo, severityMax = 9, 24
)

// handler implements [slog.Handler] for the levels that another handler takes.
type handler struct {
	logs  *Logs
	next  slog.Handler
	parts []part // by With and WithGroup, in order
}

// part is a group that was opened, or attributes.
type part struct {
	group string
	attrs []slog.Attr
}

// Enabled implements [slog.Handler].
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(list []slog.Attr) slog.Handler { return h.with(part{attrs: list}) }

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler { return h.with(part{group: name}) }

func (h handler) with(p part) slog.Handler {
	h.parts = append(slices.Clip(h.parts), p)
	return h
}

// Handle implements [slog.Handler]. The entry has the trace and the span of ctx.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	attrs := make([]slog.Attr, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	for _, p := range slices.Backward(h.parts) {
		if p.group != "" {
			attrs = []slog.Attr{{Key: p.group, Value: slog.GroupValue(attrs...)}}
		} else {
			attrs = append(slices.Clip(p.attrs), attrs...)
		}
	}
	t := translation{left: entryBytesMax}
	out := &logspb.LogRecord{
		ObservedTimeUnixNano: nanos(time.Now()), SeverityText: r.Level.String(),
		SeverityNumber: logspb.SeverityNumber(min(max(int(r.Level-slog.LevelInfo)+severityInfo, 1), severityMax)), Body: t.text(r.Message),
	}
	if !r.Time.IsZero() {
		out.TimeUnixNano = nanos(r.Time)
	}
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		traceID, spanID := span.TraceID(), span.SpanID()
		out.TraceId, out.SpanId, out.Flags = traceID[:], spanID[:], uint32(span.TraceFlags())
	}
	out.Attributes = t.attributes(attrs)
	if more := len(out.Attributes) - attributesMax; more > 0 {
		out.Attributes, t.dropped = out.Attributes[:attributesMax], t.dropped+more
	}
	out.DroppedAttributesCount = uint32(t.dropped)
	h.logs.add(out)
	return nil
}

// translation translates the values of an entry.
type translation struct {
	left    int // bytes that the entry may still have
	dropped int // attributes that found no bytes left
}

// attributes translates a list. As in slog, an attribute without key and value does not count, nor does a group
// without attributes, and the attributes of a group without name belong to the list itself.
func (t *translation) attributes(list []slog.Attr) (out []*commonpb.KeyValue) {
	for _, a := range list {
		v := a.Value.Resolve()
		switch {
		case a.Key == "" && v.Kind() == slog.KindAny && v.Any() == nil:
			continue
		case v.Kind() == slog.KindGroup && a.Key == "":
			out = append(out, t.attributes(v.Group())...)
			continue
		}
		if len(a.Key)+numberBytes > t.left {
			t.dropped++
			continue
		}
		key := t.cut(a.Key)
		if v.Kind() != slog.KindGroup {
			out = append(out, &commonpb.KeyValue{Key: key, Value: t.value(v)})
		} else if group := t.attributes(v.Group()); len(group) > 0 {
			out = append(out, &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{Values: group}}}})
		}
	}
	return out
}

// value translates a value that is no group.
func (t *translation) value(v slog.Value) *commonpb.AnyValue {
	switch v.Kind() {
	case slog.KindAny:
		return t.any(v.Any())
	case slog.KindBool:
		return t.bool(v.Bool())
	case slog.KindInt64:
		return t.int(v.Int64())
	case slog.KindDuration:
		return t.int(int64(v.Duration()))
	case slog.KindUint64:
		return t.uint(v.Uint64())
	case slog.KindFloat64:
		return t.float(v.Float64())
	case slog.KindTime:
		return t.text(v.Time().Format(time.RFC3339Nano))
	}
	return t.text(v.String())
}

// any translates a value of any type: texts and numbers also if their types have names, and errors as text.
func (t *translation) any(value any) (out *commonpb.AnyValue) {
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.Invalid:
		return t.text("<nil>")
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		if v.IsNil() {
			return t.text("<nil>") // methods may not expect it
		}
	}
	defer func() { // as in the handlers of slog: an entry of the log ends no program
		if p := recover(); p != nil {
			out = t.text(fmt.Sprintf("!PANIC: %v", p))
		}
	}()
	switch x := value.(type) {
	case error:
		return t.text(x.Error())
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		if err != nil {
			return t.text("!ERROR: " + err.Error())
		}
		return t.text(string(text))
	case fmt.Stringer:
		return t.text(x.String())
	}
	switch v.Kind() {
	case reflect.String:
		return t.text(v.String())
	case reflect.Bool:
		return t.bool(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return t.int(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return t.uint(v.Uint())
	case reflect.Float32, reflect.Float64:
		return t.float(v.Float())
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			return t.text(string(v.Bytes()))
		}
		t.left -= numberBytes // also bounds lists of empty lists
		list := &commonpb.ArrayValue{}
		for i := 0; i < v.Len() && t.left >= numberBytes; i++ {
			list.Values = append(list.Values, t.value(slog.AnyValue(v.Index(i).Interface()).Resolve()))
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: list}}
	}
	return t.text(fmt.Sprintf("%+v", value))
}

func (t *translation) bool(b bool) *commonpb.AnyValue {
	t.left -= numberBytes
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: b}}
}

func (t *translation) int(i int64) *commonpb.AnyValue {
	t.left -= numberBytes
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: i}}
}

func (t *translation) uint(u uint64) *commonpb.AnyValue {
	if u > math.MaxInt64 {
		return t.text(fmt.Sprint(u))
	}
	return t.int(int64(u))
}

func (t *translation) float(f float64) *commonpb.AnyValue {
	t.left -= numberBytes
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: f}}
}

func (t *translation) text(s string) *commonpb.AnyValue {
	t.left -= numberBytes
	return textOf(t.cut(s))
}

// cut returns the first bytes of s, as many as the entry has left, as valid UTF-8: a receiver refuses a whole batch for
// one invalid text.
func (t *translation) cut(s string) string {
	// The entry waits to be sent: without a copy, its part of a long text would keep all of the text in memory.
	s = strings.Clone(first(strings.ToValidUTF8(first(s, t.left), "\uFFFD"), t.left))
	t.left -= len(s)
	return s
}

// first returns s if it has at most n bytes, or else as many whole characters as fit.
func first(s string, n int) string {
	if n = max(n, 0); len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
