package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// looped is what a loop took and saw.
type looped struct {
	Times  []float64 // nanoseconds of one open and close, block by block
	Failed int       // opens, those of the first two blocks included
}

// loop PATH ROUNDS BLOCKS opens and closes a file, ROUNDS times a block, and
// returns the nanoseconds of one open and close, block by block. With a %d in
// PATH it goes through as many files as there are rounds. Under -icount a
// nanosecond is an instruction. A file that can't be opened isn't closed.
//
// The calls are raw and the collector is off, so that nothing of the Go runtime
// runs between two readings of the clock; what other threads and timers take
// falls on some blocks only.
func loop(args []string) (*looped, error) {
	if len(args) != 3 {
		return nil, fmt.Errorf("loop: want PATH ROUNDS BLOCKS, got %q", args)
	}
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	blocks, err := strconv.Atoi(args[2])
	if err != nil {
		return nil, err
	}
	paths := make([]*byte, rounds)
	for i := range paths {
		if paths[i], err = unix.BytePtrFromString(strings.ReplaceAll(args[0], "%d", strconv.Itoa(i))); err != nil {
			return nil, err
		}
	}
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	out := &looped{Times: make([]float64, blocks)}
	for b := -2; b < blocks; b++ { // two to warm up
		from := now()
		for _, p := range paths {
			fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, atCWD, uintptr(unsafe.Pointer(p)), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
			if errno == 0 {
				unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
			} else {
				out.Failed++
			}
		}
		if took := now() - from; b >= 0 {
			out.Times[b] = float64(took) / float64(rounds)
		}
	}
	return out, nil
}

const atCWD = ^uintptr(99) // AT_FDCWD, -100

func now() int64 {
	var t unix.Timespec
	unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}
