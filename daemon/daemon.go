package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"

	"github.com/coreos/go-systemd/v22/activation"
	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/policy"
)

// settings is the daemon's command line.
type settings struct {
	runDir, policies, socket, baseline, logFormat string
	kernel                                        bpf.Options
}

func daemonCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Run the node's daemon",
		Long: `Loads the kernel part, or takes it over from the daemon before, answers the hook
and reports events until it is told to end. Ending it leaves enforcement on;
` + "`dunnage stop --release`" + ` takes it off. SIGHUP reloads the policies.`,
		Example: "  dunnage daemon\n  dunnage daemon --policies /etc/dunnage/policies.d --baseline node",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.runDir, _ = cmd.Flags().GetString("run-dir")
			if s.socket == "" {
				s.socket = filepath.Join(s.runDir, "hook.sock")
			}
			return s.serve()
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.policies, "policies", installed, "folder of policy files")
	f.StringVar(&s.socket, "socket", "", "the hook's socket (default RUN-DIR/hook.sock)")
	f.StringVar(&s.baseline, "baseline", "", "policy that every container gets besides its own")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	f.StringVar(&s.kernel.PinDir, "pin-dir", bpf.DefaultPinDir, "where maps and links are pinned")
	f.IntVar(&s.kernel.TableBytes, "table-bytes", 0, "memory for all tables, in bytes (default 33554432)")
	f.IntVar(&s.kernel.Containers, "containers", 0, "containers at a time (default 4096)")
	f.IntVar(&s.kernel.EventBudget, "event-budget", 0, "events a second and container (default 100)")
	f.BoolVar(&s.kernel.NoCache, "no-cache", false, "walk every path: the same answers, slower")
	f.IntVar(&s.kernel.CacheEntries, "cache-entries", 0, "directories that the cache holds, 64 bytes each (default 16384)")
	f.BoolVar(&s.kernel.CheckCache, "check-cache", false, "walk on every hit, too, and report disagreements: for tests")
	return cmd
}

// serve is the daemon's life.
func (s settings) serve() error {
	log := logrus.New()
	if s.logFormat == "json" {
		log.SetFormatter(&logrus.JSONFormatter{})
	} else {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true})
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, unix.SIGHUP)

	if err := os.MkdirAll(s.runDir, 0o755); err != nil {
		return fmt.Errorf("making the run folder: %w", err)
	}
	unlock, err := lockFile(filepath.Join(s.runDir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	set, err := loadPolicies(s.policies, log)
	if err != nil {
		return err
	}
	if s.baseline != "" {
		if _, err := set.Lookup(s.baseline); err != nil {
			return fmt.Errorf("the baseline: %w", err)
		}
	}
	engine, err := bpf.Load(s.kernel)
	if err != nil {
		return withHint(err, "`dunnage check` says what this host lacks")
	}
	defer engine.Close()
	r, err := newRegistry(engine, s.runDir, s.baseline, set, log.WithField("version", version))
	if err != nil {
		return err
	}
	if err := r.adopt(); err != nil {
		return err
	}
	events, err := openEventLog(s.runDir)
	if err != nil {
		return err
	}
	hook, err := s.hookListener()
	if err != nil {
		return err
	}
	control, err := listenControl(s.runDir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &daemon{settings: s, registry: r, events: events, log: log, end: cancel}

	var wg sync.WaitGroup
	fail := make(chan error, 1)
	background := func(f func()) {
		wg.Add(1)
		go func() { defer wg.Done(); f() }()
	}
	background(func() { r.serveHook(ctx, hook) })
	background(func() { r.watch.run(ctx, r.initEnded) })
	background(func() { r.housekeeping(ctx) })
	background(func() { d.serveControl(ctx, control) })
	background(func() {
		if err := engine.Read(ctx, func(ev bpf.Event) { r.handle(ev, events) }); err != nil && !errors.Is(err, context.Canceled) {
			fail <- err
			cancel()
		}
	})
	log.WithFields(logrus.Fields{"socket": s.socket, "policies": set.Names()}).Info("ready")
	_, _ = sd.SdNotify(false, sd.SdNotifyReady)
	for {
		select {
		case <-hup:
			_, _ = sd.SdNotify(false, sd.SdNotifyReloading)
			if err := d.reload(); err != nil {
				log.WithError(err).Error("reloading")
			}
			_, _ = sd.SdNotify(false, sd.SdNotifyReady)
		case <-ctx.Done():
			_, _ = sd.SdNotify(false, sd.SdNotifyStopping)
			wg.Wait()
			log.Info("ended; what is bound stays confined")
			select {
			case err := <-fail:
				return err
			default:
				return d.released
			}
		}
	}
}

func newRegistry(k kernel, runDir, baseline string, set *policy.Set, log *logrus.Entry) (*registry, error) {
	st, err := newStore(runDir)
	if err != nil {
		return nil, err
	}
	w, err := newWatcher()
	if err != nil {
		return nil, err
	}
	return &registry{kernel: k, store: st, log: log, baseline: baseline, watch: w, policies: set,
		containers: map[bpf.Instance]*container{}}, nil
}

// daemon ties the parts together for the control socket.
type daemon struct {
	settings
	registry *registry
	events   *eventLog
	log      *logrus.Logger
	end      func()
	released error
}

// reload reads the policies anew and puts them in force.
func (d *daemon) reload() error {
	set, err := loadPolicies(d.policies, d.log)
	if err != nil {
		return err
	}
	return d.registry.reload(set)
}

// loadPolicies reads the folder; what is wrong in it is logged and keeps only
// the policies concerned from being used.
func loadPolicies(dir string, log *logrus.Logger) (*policy.Set, error) {
	set, err := policy.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, problem := range set.Problems() {
		entry := log.WithField("hint", problem.Hint)
		if problem.Warning {
			entry.Warnf("%s: %s", problem.Pos, problem.Message)
		} else {
			entry.Errorf("%s: %s", problem.Pos, problem.Message)
		}
	}
	return set, nil
}

// hookListener is systemd's socket, or one of our own.
func (s settings) hookListener() (int, error) {
	if files := activation.Files(true); len(files) > 0 {
		return unix.FcntlInt(files[0].Fd(), unix.F_DUPFD_CLOEXEC, 3)
	}
	return listenHook(s.socket)
}

// lockFile makes sure that there is one daemon.
func lockFile(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, withHint(fmt.Errorf("another daemon runs: %s is locked", path), "`dunnage ps` talks to it; `dunnage stop` ends it")
	}
	return func() { f.Close() }, nil
}
