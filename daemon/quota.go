package main

import (
	"fmt"
	"sync"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// The hook's socket is open to every user, since rootless containers have
// policies, too. What a user other than root can hold is bounded, so that
// nobody keeps root's containers, or another user's, from starting. A user may
// have many uids by user namespaces: so all of them together have a bound, too.
const (
	connectionsOfOne    = 32                 // at a time, of one uid
	connectionsOfOthers = maxConnections / 2 // at a time, of all but root
	containersOfOne     = 256                // of one uid
	othersShare         = 2                  // of the container rows, all but root may hold one in so many
)

// callers counts the connections to the hook's socket.
type callers struct {
	mu     sync.Mutex
	of     map[uint32]int
	others int
}

// admit takes a connection of uid, or says that it has too many. It is given
// back by leave.
func (c *callers) admit(uid uint32) bool {
	if uid == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[uid] >= connectionsOfOne || c.others >= connectionsOfOthers {
		return false
	}
	if c.of == nil {
		c.of = map[uint32]int{}
	}
	c.of[uid]++
	c.others++
	return true
}

func (c *callers) leave(uid uint32) {
	if uid == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others--
	if c.of[uid]--; c.of[uid] == 0 {
		delete(c.of, uid)
	}
}

// mayHold says whether uid may have one container more; the lock is held.
func (r *registry) mayHold(uid uint32) error {
	if uid == 0 {
		return nil
	}
	own, others := 0, 0
	for _, c := range r.containers {
		if c.Asked.UID != 0 {
			others++
		}
		if c.Asked.UID == uid {
			own++
		}
	}
	if own >= containersOfOne {
		return refusal{wire.Full, fmt.Errorf("user %d has %d containers with policies already: end some of them", uid, own)}
	}
	if most := r.kernel.ContainerRows() / othersShare; others >= most {
		return refusal{wire.Full, fmt.Errorf("users other than root have %d containers with policies already, as many as they may: end some, or start the daemon with more --containers", others)}
	}
	return nil
}
