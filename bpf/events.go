package bpf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/policy"
)

// Read calls f for every event until ctx ends. Events that come while nobody
// reads wait in the ring; when it is full they are counted (Lost, Counts).
func (e *Engine) Read(ctx context.Context, f func(Event)) error {
	r, err := ringbuf.NewReader(e.coll.Maps[kernelMapEvents])
	if err != nil {
		return fmt.Errorf("reading events: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { r.Close() })
	defer stop()
	var rec ringbuf.Record
	for {
		if err := r.ReadInto(&rec); errors.Is(err, ringbuf.ErrClosed) {
			return ctx.Err()
		} else if err != nil {
			return fmt.Errorf("reading events: %w", err)
		}
		ev, err := decodeEvent(rec.RawSample, e.program)
		if err != nil {
			return err
		}
		ev.Time = wallTime(uint64(ev.Time.UnixNano()))
		f(ev)
	}
}

// wallTime turns nanoseconds since boot into a time of day.
func wallTime(boot uint64) time.Time {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return time.Now()
	}
	return time.Now().Add(-time.Duration(now.Nano() - int64(boot)))
}

// decodeEvent reads a record of the ring; Time is left in nanoseconds since
// boot. Any bytes are safe to decode.
func decodeEvent(b []byte, program func(uint64) (string, bool)) (Event, error) {
	le := binary.LittleEndian
	if len(b) < eventPath {
		return Event{}, fmt.Errorf("event of %d bytes: at least %d expected", len(b), eventPath)
	}
	n := int(le.Uint32(b[eventPathLen:]))
	if n > len(b)-eventPath {
		return Event{}, fmt.Errorf("event with a path of %d bytes in a record of %d", n, len(b))
	}
	ev := Event{
		ID:       le.Uint64(b),
		Time:     time.Unix(0, int64(le.Uint64(b[8:]))),
		Instance: Instance(le.Uint64(b[16:])),
		Table:    Table(le.Uint64(b[24:])),
		PID:      int(le.Uint32(b[32:])),
		TID:      int(le.Uint32(b[36:])),
		Access:   policy.Kind(b[40]),
		Op:       "unknown",
		Reason:   policy.Reason(b[42]),
		Denied:   b[43] != 0,
		Partial:  b[44] != 0,
		Comm:     unix.ByteSliceToString(b[48:64]),
		Path:     string(b[eventPath : eventPath+n]),
	}
	if int(b[41]) < len(opNames) {
		ev.Op = opNames[b[41]]
	}
	ev.Enforced = b[41] == opEnforced
	names := func(at, count, most int) (out []string) {
		for i := range min(count, most) {
			if path, ok := program(le.Uint64(b[at+8*i:])); ok {
				out = append(out, path)
			}
		}
		return out
	}
	ev.Subject.Programs = names(eventPrograms, int(b[45]), programsMax)
	ev.Subject.Inherited = names(eventInherited, int(b[46]), inheritMax)
	return ev, nil
}
