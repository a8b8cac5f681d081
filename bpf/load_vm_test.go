package bpf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// vmOnly skips a test that needs a kernel which takes LSM programs.
func vmOnly(t *testing.T) {
	t.Helper()
	if os.Getenv("DUNNAGE_VM") == "" {
		t.Skip("needs a kernel that loads LSM programs: runs in the VM tier")
	}
}

func testOptions(t *testing.T) Options {
	return Options{PinDir: filepath.Join("/sys/fs/bpf", t.Name()), TableBytes: 1 << 20, Containers: 64}
}

func loadForTest(t *testing.T, o Options) *Engine {
	t.Helper()
	e, err := Load(o)
	if err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Fatalf("%v\n%+v", err, ve)
		}
		t.Fatal(err)
	}
	return e
}

// Every program loads and attaches, a second load takes over from the first,
// and release leaves nothing.
func TestLoad(t *testing.T) {
	vmOnly(t)
	start := time.Now()
	o := testOptions(t)
	first := loadForTest(t, o)
	t.Logf("loaded and attached in %v", time.Since(start))
	second := loadForTest(t, o)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id, err := second.NamespaceID(int(f.Fd()))
	if err != nil || id == 0 {
		t.Fatalf("namespace id %d, %v", id, err)
	}
	if tasks, err := second.Tasks(); err != nil || len(tasks) != 0 {
		t.Fatalf("tasks %v, %v", tasks, err)
	}
	if err := second.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(o.PinDir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("after release: %v", err)
	}
}

func TestProbe(t *testing.T) {
	vmOnly(t)
	for _, f := range Probe() {
		t.Logf("%v %s: %s %s", f.OK, f.Name, f.Detail, f.Remedy)
		if !f.OK {
			t.Errorf("%s: %s", f.Name, f.Detail)
		}
	}
}
