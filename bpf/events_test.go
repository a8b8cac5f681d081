package bpf

import (
	"encoding/binary"
	"testing"
)

// Any record is decoded, or refused, with no more in the event than there is in
// the record; and what was decoded, written again, decodes to the same.
func FuzzEvent(f *testing.F) {
	whole := make([]byte, eventPath+9)
	whole[41], whole[42], whole[43], whole[45], whole[46] = 2, 1, 1, programsMax, inheritMax
	copy(whole[48:], "a-comm-of-16byte")
	whole[eventPathLen] = 9
	copy(whole[eventPath:], "/etc/x\n\xff\x00")
	f.Add(whole)
	f.Add(whole[:eventPath])
	f.Add(whole[:12])
	f.Fuzz(func(t *testing.T, b []byte) {
		program := func(key uint64) (string, bool) { return "/p", key%3 != 2 }
		ev, err := decodeEvent(b, program)
		if err != nil {
			return
		}
		if len(b) < eventPath || len(ev.Path) > len(b)-eventPath || len(ev.Comm) > 16 ||
			len(ev.Subject.Programs) > programsMax || len(ev.Subject.Inherited) > inheritMax {
			t.Fatalf("%d bytes: %+v", len(b), ev)
		}
		if ev.Op == "" || ev.Reason.String() == "" || ev.Access.String() == "" {
			t.Fatalf("a word is missing: %+v", ev)
		}
		le := binary.LittleEndian
		out := make([]byte, eventPath, len(b))
		le.PutUint64(out, ev.ID)
		le.PutUint64(out[8:], uint64(ev.Time.UnixNano()))
		le.PutUint64(out[16:], uint64(ev.Instance))
		le.PutUint64(out[24:], uint64(ev.Table))
		le.PutUint32(out[32:], uint32(ev.PID))
		le.PutUint32(out[36:], uint32(ev.TID))
		out[40], out[42] = byte(ev.Access), byte(ev.Reason)
		out[41] = b[41]
		copy(out[48:64], ev.Comm)
		le.PutUint32(out[eventPathLen:], uint32(len(ev.Path)))
		out = append(out, ev.Path...)
		again, err := decodeEvent(out, program)
		if err != nil || again.ID != ev.ID || !again.Time.Equal(ev.Time) || again.Instance != ev.Instance || again.Table != ev.Table || again.PID != ev.PID ||
			again.TID != ev.TID || again.Access != ev.Access || again.Op != ev.Op || again.Reason != ev.Reason || again.Comm != ev.Comm || again.Path != ev.Path || again.Enforced != ev.Enforced {
			t.Fatalf("%+v became %+v, %v", ev, again, err)
		}
	})
}
