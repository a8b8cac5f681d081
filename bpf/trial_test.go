package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
)

func TestTrialLoads(t *testing.T) {
	spec, err := loadTrial()
	if err != nil {
		t.Fatal(err)
	}
	spec.Maps["heap"].MaxEntries = 1 << 16
	spec.Variables["have_cast"].Set(true)
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		var ve *ebpf.VerifierError
		errors.As(err, &ve)
		t.Fatalf("%v: %+v", err, ve)
	}
	defer c.Close()
}
