package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// verdictUnconfined is the verdict of an event that a container runs which should
// have policies and has none. Reason fail-open: as the configuration says;
// no-hook: its runtime ran none.
const verdictUnconfined = "unconfined"

// reportUnconfined reports the containers of the fail-open list that started
// while the daemon could not be reached: at once when it starts, and later for
// those that came while it did not answer. What a daemon has reported, the next
// one does not.
func (d *daemon) reportUnconfined(ctx context.Context, path string) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		if err := d.takeUnconfined(path); err != nil {
			d.log.WithError(err).Error("reading which containers started without the daemon")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (d *daemon) takeUnconfined(path string) error {
	taken := path + ".taken" // a hook may be writing: it goes on in the file that it opened
	if err := os.Rename(path, taken); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	time.Sleep(50 * time.Millisecond)
	data, err := os.ReadFile(taken)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var u wire.Unconfined
		if json.Unmarshal(lines.Bytes(), &u) != nil {
			u = wire.Unconfined{Time: time.Now().UTC(), Why: "a line that can't be read: " + lines.Text()}
		}
		name := u.Name
		if u.Namespace != "" {
			name = u.Namespace + "/" + u.Name
		}
		d.unconfined(report{Time: u.Time, Container: u.ID, Name: name, PID: u.PID, Verdict: verdictUnconfined, Reason: "fail-open", Op: "start", Rule: u.Why})
	}
	return os.Remove(taken)
}

// unconfined makes an event of a container that runs without its policies, as
// loud as the log can be.
func (d *daemon) unconfined(r report) {
	d.log.WithFields(logrus.Fields{"container": r.Container, "name": r.Name, "pid": r.PID, "reason": r.Reason, "why": r.Rule}).
		Error("a container runs UNCONFINED that should have policies: `dunnage attach` confines it")
	if err := d.events.add(r); err != nil {
		d.log.WithError(err).Error("writing an event")
	}
}
