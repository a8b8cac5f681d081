package main

import (
	"errors"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// The exit statuses. crun shows nothing else of a hook that fails.
const (
	exitUsage       = 2
	exitState       = 10 // the runtime's State can't be read, or has no pid
	exitConfig      = 11 // /etc/dunnage/hook.json can't be trusted
	exitUnavailable = 12 // nobody listens on the daemon's socket
	exitTimeout     = 13 // the daemon does not answer
	exitProtocol    = 14 // it answers, but not understandably
	exitProcess     = 15 // the container's init is gone
	exitBadRequest  = 20
	exitVersion     = 21
	exitRefused     = 22
	exitUnknown     = 23 // unknown policy
	exitInvalid     = 24 // invalid policy
	exitNamespace   = 25 // a namespace that can't be bound
	exitFull        = 26
	exitInternal    = 27
)

// failure is an error with an exit status.
type failure struct {
	status  int
	message string
}

func (f failure) Error() string { return f.message }

func exitOf(err error) int {
	if err == nil {
		return 0
	}
	var f failure
	if errors.As(err, &f) {
		return f.status
	}
	return exitInternal
}

var exitOfCode = map[wire.Code]int{
	wire.BadRequest: exitBadRequest, wire.BadVersion: exitVersion, wire.Refused: exitRefused,
	wire.UnknownPolicy: exitUnknown, wire.InvalidPolicy: exitInvalid, wire.BadNamespace: exitNamespace,
	wire.Full: exitFull, wire.Internal: exitInternal,
}
