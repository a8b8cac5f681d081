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
	"github.com/dunnage-project/dunnage/hook/wire"
	"github.com/dunnage-project/dunnage/policy"
)

// settings is the daemon's command line.
type settings struct {
	runDir, policies, socket, baseline, logFormat string
	config, hooksDir, nri                         string
	attachMissing                                 bool
	kernel                                        bpf.Options
}

func daemonCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Run the node's daemon",
		Long: `Loads the kernel part, or takes it over from the daemon before, answers the hook
and reports events until it is told to end. Ending it leaves enforcement on;
` + "`dunnage stop --release`" + ` takes it off. SIGHUP reloads policies and configuration.`,
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
	f.StringVar(&s.config, "config", defaultConfig, "the node's configuration")
	f.StringVar(&s.hooksDir, "hooks-dir", hooksDirs[0], "where to put the hooks.d file for every container, while the configuration has policies for such")
	f.StringVar(&s.socket, "socket", "", "the hook's socket (default RUN-DIR/hook.sock)")
	f.StringVar(&s.baseline, "baseline", "", "one more policy for the configuration's baseline")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	f.StringVar(&s.kernel.PinDir, "pin-dir", bpf.DefaultPinDir, "where maps and links are pinned")
	f.IntVar(&s.kernel.TableBytes, "table-bytes", 0, "memory for all tables, in bytes (default 33554432)")
	f.IntVar(&s.kernel.Containers, "containers", 0, "containers at a time (default 4096)")
	f.IntVar(&s.kernel.EventBudget, "event-budget", 0, "events a second and container (default 100)")
	f.StringVar(&s.nri, "nri", nriSocket, "containerd's NRI socket, connected to when it is there; empty: never")
	f.BoolVar(&s.attachMissing, "attach-missing", false, "label containers that run without the policies they ask for (NRI)")
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
	before := s.fingerprint()
	set, err := loadPolicies(s.policies, log)
	if err != nil {
		return err
	}
	conf, err := s.loadConfig(set)
	if err != nil {
		return withHint(err, "`dunnage config check` says more")
	}
	engine, err := bpf.Load(s.kernel)
	if err != nil {
		return withHint(err, "`dunnage check` says what this host lacks")
	}
	defer engine.Close()
	r, err := newRegistry(engine, s.runDir, conf, set, log.WithField("version", version))
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
	if err := s.tellHook(conf); err != nil {
		return err
	}
	control, err := listenPrivate(filepath.Join(s.runDir, "control.sock"))
	if err != nil {
		return err
	}
	metrics, err := listenPrivate(filepath.Join(s.runDir, "metrics.sock"))
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
	background(func() { d.serveHTTP(ctx, control, d.controlHandler()) })
	background(func() { d.serveHTTP(ctx, metrics, r.metricsHandler()) })
	background(func() { d.reportUnconfined(ctx, wire.UnconfinedLog) })
	if s.nri != "" {
		plugin := &nriPlugin{registry: r, log: log.WithField("runtime", "nri"), attach: s.attachMissing}
		background(func() { plugin.serveNRI(ctx, s.nri) })
	}
	background(func() { newSafetyNet(r, d.unconfined).run(ctx) })
	changed, err := d.watchFiles(ctx, before)
	if err != nil {
		return err
	}
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
		case <-changed:
			log.Info("the files have changed")
			if err := d.reload(); err != nil {
				log.WithError(err).Error("reloading")
			}
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

func newRegistry(k kernel, runDir string, conf *nodeConfig, set *policy.Set, log *logrus.Entry) (*registry, error) {
	st, err := newStore(runDir)
	if err != nil {
		return nil, err
	}
	w, err := newWatcher()
	if err != nil {
		return nil, err
	}
	return &registry{kernel: k, store: st, log: log, config: conf, watch: w, policies: set,
		containers: map[bpf.Instance]*container{}, count: newCounters()}, nil
}

// daemon ties the parts together for the control socket.
type daemon struct {
	settings
	registry *registry
	events   *eventLog
	log      *logrus.Logger
	end      func()
	released error

	reloading sync.Mutex
}

// reload reads configuration and policies anew and puts them in force. A
// configuration with an error, or one that names a policy which can't be used,
// changes nothing.
func (d *daemon) reload() (err error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	defer func() { d.registry.count.reloaded(err) }()
	set, err := loadPolicies(d.policies, d.log)
	if err != nil {
		return err
	}
	conf, err := d.loadConfig(set)
	if err != nil {
		return fmt.Errorf("nothing is changed: %w", err)
	}
	return d.apply(set, conf)
}

// apply orders the steps so that at none of them a container is missed: the hook
// learns of more before the daemon and of less after it.
func (d *daemon) apply(set *policy.Set, conf *nodeConfig) error {
	if conf.everyContainer() {
		if err := d.tellHook(conf); err != nil {
			return err
		}
	}
	err := d.registry.reconfigure(set, conf)
	if !conf.everyContainer() {
		err = errors.Join(err, d.tellHook(conf))
	}
	return err
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
