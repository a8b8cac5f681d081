package wire

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func TestMessageAndDescriptorsArrive(t *testing.T) {
	a, b := pair(t)
	sent := Request{Version: Version, Op: OpBind, ID: "c1", PID: 7, Annotations: map[string]string{Annotation: "pg"}}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := Send(a, sent, int(file.Fd()), int(file.Fd())); err != nil {
		t.Fatal(err)
	}
	data, fds, err := Receive(b)
	for _, fd := range fds {
		flags, ferr := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if ferr != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %x, %v: a child would inherit it", fd, flags, ferr)
		}
		unix.Close(fd)
	}
	var got Request
	if err != nil || len(fds) != 2 || Decode(data, &got) != nil || !reflect.DeepEqual(got, sent) {
		t.Errorf("got %+v, %d descriptors, %v", got, len(fds), err)
	}
}

func TestReceiveRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		fds  int
		want string
	}{
		"too large":            {strings.Repeat("x", MaxMessage+1), 0, "more than"},
		"too many descriptors": {"{}", 9, "too many descriptors"},
	} {
		a, b := pair(t)
		var oob []byte
		if c.fds > 0 {
			oob = unix.UnixRights(make([]int, c.fds)...) // descriptor 0, again and again
		}
		if err := unix.Sendmsg(a, []byte(c.data), oob, nil, 0); err != nil {
			t.Fatal(err)
		}
		_, fds, err := Receive(b)
		for _, fd := range fds {
			unix.Close(fd)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReceiveEnds(t *testing.T) {
	a, b := pair(t)
	if err := SetDeadline(b, 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Receive(b); err != unix.EAGAIN {
		t.Errorf("a silent peer: %v", err)
	}
	if err := unix.Shutdown(a, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Receive(b); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a peer that has gone: %v", err)
	}
}

func TestSendIsBounded(t *testing.T) {
	a, _ := pair(t)
	if err := Send(a, Request{ID: strings.Repeat("x", MaxMessage)}); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a message over the limit: %v", err)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	for _, text := range []string{"", "{", `{"version":1,"root":true}`, `{"version":1}{}`, `{"version":1}}`, `{"version":1}]`, `{"version":"1"}`, `[]`} {
		if Decode([]byte(text), new(Request)) == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// What Decode accepts means the same when it is sent on.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"op":"bind","id":"x","pid":1,"annotations":{"io.dunnage.policy":"a,b"}}`))
	f.Add([]byte(`{"version":1,"op":"ended","id":"\/\u0000","pid":0}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var q, again Request
		if Decode(data, &q) != nil {
			return
		}
		out, err := json.Marshal(q)
		if err != nil || Decode(out, &again) != nil {
			t.Fatalf("%+v can't be sent on: %v", q, err)
		}
		if len(q.Annotations) == 0 {
			q.Annotations = nil // {} is left out
		}
		if !reflect.DeepEqual(q, again) {
			t.Errorf("%+v became %+v", q, again)
		}
	})
}

// Whatever a peer sends, with as many descriptors as it likes: Receive gives the
// message as it was sent and at most four descriptors, or an error, and no
// descriptor is left once the caller has closed what it was given.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"version":1}`), uint8(2))
	f.Add([]byte("{"), uint8(5))
	f.Add([]byte("x"), uint8(253))
	f.Fuzz(func(t *testing.T, data []byte, n uint8) {
		if len(data) > MaxMessage || len(data) == 0 || n > 253 { // SCM_MAX_FD; TestReceiveRefuses has the rest
			return
		}
		a, b := pair(t)
		var oob []byte
		if n > 0 {
			oob = unix.UnixRights(slices.Repeat([]int{a}, int(n))...)
		}
		if err := unix.Sendmsg(a, data, oob, nil, 0); err != nil {
			t.Fatal(err)
		}
		got, fds, err := Receive(b)
		for _, fd := range fds {
			if unix.Close(fd) != nil {
				t.Fatalf("descriptor %d is not open", fd)
			}
		}
		if !bytes.Equal(got, data) || len(fds) > 4 || n <= 4 && (err != nil || len(fds) != int(n)) || n > 4 && err == nil {
			t.Fatalf("%d bytes and %d descriptors sent, %d and %d received: %v", len(data), n, len(got), len(fds), err)
		}
		next, err := unix.Dup(b) // the lowest that is free
		if err != nil || next > max(a, b)+40 {
			t.Fatalf("descriptors are left: the next is %d: %v", next, err)
		}
		unix.Close(next)
		unix.Close(a)
		unix.Close(b)
	})
}
